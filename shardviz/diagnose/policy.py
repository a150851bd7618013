"""The decision table: what is worth a finding, which changes are tried and compiled, and what is offered and shown.

Shares are of the arguments' bytes, the bytes moved or the step, as the rule says. The error of a step's prediction at a
level is measured, and stands in `costs.accuracy`. Behind a colon is what a value was chosen for; it is measured only
where it says so.
"""

# Findings.
TINY = 1e-3  # communication below this share is no finding, and no cost has a row: the texts show no smaller one
SLIGHT = 0.01  # memory below this share is no finding, nor such a part of all communication a warning
GRAVE = 0.05  # from this share on, a finding is a warning: more than the error of a level (STEP_ERROR)
LARGE = 0.1  # kept activations, padding, repeated products: findings from here on, as most have some
REPEATED = 0.5  # the same for products at level `propagated`: the partitioner shards many that Shardy leaves repeated
MOSTLY = 0.5  # most of a tree's bytes are sharded, or one argument takes most of the memory: more than half is a rule
HELPS = 0.02  # changes that free less of what does not fit are not listed: fifty of them would be needed
SUMMED = 2  # a sum moves this many times its result, so that a gather of less is no finding: as an all-reduce does
SMALL_BYTES = 2**20  # smaller arrays are no finding: a device reads a MiB in about a microsecond
CUT = 3  # arguments suggested to be sharded along an axis whose devices repeat their work: the largest hold most bytes
BETWEEN = 3  # specs suggested between two that XLA cannot go between: the nearest come first

# Changes to try.
FINDINGS = 5  # findings whose suggestions are tried: those that the report shows without unfolding
COSTLY_AXES = 3  # axes that are tried on every dimension, most bytes moved first: few meshes have more
HELD = 2  # values in the function that are constrained: each traces the function again
OWN_CONSTRAINTS = 4  # the function's own constraints that are changed, most bytes moved first: each traces it again
PAIRS = 12  # changes tried with the own constraints dropped, where no single one helps: each traces the function

# Changes to confirm.
CONFIRMED = 2  # changes per finding that the partitioner is asked about: the predicted best, and one if it errs
CONFIRMED_ELSE = 3  # the same for each other kind of change: these have no finding that vouches for them
EARLY = 2  # changes tried, and asked about, before all are proposed: more would keep the rest waiting
UNFORESEEN = 0.1  # what propagation cannot foresee is asked about unless the step grows by this share: twice its error
COMPILED = 3  # first fixes, and plans of a search, that the compiler is to confirm: the rows in sight

# Changes to offer and to show.
WORTH = 0.005  # a change that saves a smaller share is not offered: the texts would say 0 %
LESS = 0.02  # a finding counts as improved if its cost falls by this share: less is another finding's doing
FREED = 0.5  # a fix of memory alone must free this share of what its finding reports: else another fault holds them
EQUAL = 1e-6  # relative differences up to this one are rounding errors: of sums of float64
MENTIONED = 0.5e6  # bytes of memory that a fix mentions: less is 0 MB

# Plans that a search tries, compiles and offers.
SCORING = 0.6  # share of the time for scoring plans; the rest is for the compiler, whose answers decide
CLIMBS = 4  # starts of a search before plans are changed at random: most lead to the same few plans
KICKS = 3  # decisions changed at random at most: of more nothing of the start is left
STALE = 40  # random starts in a row, all scored before, that end a search: then few plans are left
LEAST = 24  # plans tried beyond the time as long as none may fit: about one round of changes of a start
PATIENCE = 120.0  # seconds beyond the time for the first finalist's compile: an unrolled model of 32 layers takes 50
REFUSED = 16  # refusals that end a search's compiles: then the estimate of memory is of no use
MOST_TIMES = 3  # accepted plans at most, in multiples of those wanted: predictions that err more decide nothing
WORTH_COMPILING = 0.02  # share of the step that another compile must promise: half of a level's error
HIDDEN = 0.02  # share of hidden communication that counts, so that of equal steps the one with less of it wins
TOO_MUCH = 10.0  # relative increase of the step per relative excess of memory: 10 % too much double it
