"""How an alteration lives: judged, recorded, sent, concluded, answered."""
