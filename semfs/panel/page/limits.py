"""How much of the panel the page shows."""

#: Features drawn in a dot plot or heat map, and classes: more could not be read.
MOST_SHOWN = 100
# Tables are folded on the page, so they may be longer than figures.
#: Rows of the tables of pairs; the frames have all of them.
MOST_PAIRS = 300
#: Pairs of classes that are named in the text.
MOST_NAMED = 5
#: Pairs of which more than this share of the samples is confused are named.
NOTABLE_ERROR = 0.05
