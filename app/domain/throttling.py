"""How long a limit would have throttled a bucket, from the average and the maximum of each minute.

A fluid model of one bucket on one broker. A minute has two phases: traffic at its maximum for as
long as its average allows, then none. What exceeds the limit waits, and drains when there is less.
Averages alone miss clients that send in bursts: their average may be far below the limit.

What a broker measures is a rate over 10 to 11 seconds, so that a burst from rest may exceed the
limit for a while. That slack is ``credit``, in seconds of the limit: nobody knows how much of it a
burst had, so each figure is reported for three credits. They change only how soon throttling
begins, never how much waits.

Of ``controller_mutation_rate`` brokers have tokens: 11 seconds of the limit, then requests are
refused. There nothing waits; ``waiting`` are the tokens that are spent.

Not modelled: several connections that share a rate, the sizes of fetches, clients that give up or
send again, the interplay of two keys.

Source: ``ClientQuotaManager``, ``Rate`` and ``TokenBucket`` of Kafka 4.3.1.
"""

from typing import Final

from app.domain.quota_keys import QuotaKey

MINUTE_S: Final = 60.0

CREDITS_S: Final = (10.0, 5.0, 0.0)
"""Of the low, the middle and the high figure: the more credit, the less is throttled."""

LATEST_S: Final = 20.0
"""A burst is throttled after so long at the latest: a rate over the limit fills the window of 10 to
11 seconds, and its maximum was measured over such a window, too."""

TOKENS_S: Final = 11.0
"""So many seconds of its limit a bucket of tokens holds: samples x 1 s. Source: ``TokenBucket``."""

TOKEN_KEY: Final = QuotaKey.CONTROLLER_MUTATION_RATE
"""The only key whose requests are refused, not delayed."""
