"""Differences with intervals.

The lead of each model over EASE on MovieLens 1M, paired by user, with 95 percent intervals.
"""

from drawing import BLUE, GREY, RED, Figure, comparison, figure


def draw() -> Figure:
    tests = [test for test in comparison().differences if test.metric == "ndcg@100" and test.ci95]
    tests = sorted((test for test in tests if abs(test.difference) < 0.035), key=lambda test: test.difference)
    shown, axes = figure(6.4, 5.6)
    for place, test in enumerate(tests):
        low, high = (100 * end for end in test.ci95)
        colour = BLUE if low > 0 else RED if high < 0 else GREY
        axes.plot([low, high], [place, place], color=colour, lw=2)
        axes.plot(100 * test.difference, place, "o", color=colour, ms=4)
    axes.axvline(0, color="black", lw=1)
    axes.set(yticks=range(len(tests)), yticklabels=[test.a for test in tests], xlabel="NDCG@100 minus EASE, points")
    axes.tick_params(axis="y", labelsize=7)
    return shown
