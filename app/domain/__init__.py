"""The rules of client quotas: plain functions over frozen values, standard library only."""
