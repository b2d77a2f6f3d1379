import pytest

from innerloop.algorithms import LeastSquares, Zero
from innerloop.analysis import Estimate, learning_curve, plot_learning_curves
from innerloop.tasks import LinearRegression
from tests.samples import seeded

INF, NAN = float("inf"), float("nan")


def curve(*means, error=0.1):
    return [Estimate(float(mean), error, 100) for mean in means]


def bands(axes):
    """Lowest and highest value of every band that is drawn."""
    return [
        (min(path.vertices[:, 1]), max(path.vertices[:, 1]))
        for band in axes.collections
        for path in band.get_paths()
    ]


def test_every_learner_has_a_line_of_its_own_from_no_example_on():
    axes = plot_learning_curves({"one": curve(3, 2, 1), "two": curve(2, 2)}).axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["one"].get_xydata().tolist() == [[0, 3], [1, 2], [2, 1]]
    assert lines["two"].get_xydata().tolist() == [[0, 2], [1, 2]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]


def test_bands_are_two_standard_errors_and_never_reach_0():
    axes = plot_learning_curves({"one": curve(2.0, 2.0), "near 0": curve(0.1, 0.1)}).axes[0]
    (low, high), (near, _) = bands(axes)
    assert (low, high) == (pytest.approx(1.8), pytest.approx(2.2))
    assert near == pytest.approx(0.05)


def test_losses_are_divided_by_what_they_are_relative_to():
    axes = plot_learning_curves({"one": curve(4.0, 2.0)}, relative_to=4.0, title="t").axes[0]
    assert axes.get_lines()[0].get_ydata().tolist() == [1.0, 0.5]
    assert bands(axes)[0] == (pytest.approx(0.45), pytest.approx(1.05))
    assert axes.get_title() == "t"


def test_a_loss_that_falls_far_is_drawn_on_a_logarithmic_axis():
    assert plot_learning_curves({"one": curve(1, 0.5)}).axes[0].get_yscale() == "linear"
    assert plot_learning_curves({"one": curve(1, 0.001)}).axes[0].get_yscale() == "log"


def test_rounding_errors_do_not_stretch_the_axis():
    axes = plot_learning_curves({"one": curve(1.0, 1e-30, error=1e-31)}).axes[0]
    bottom, top = axes.get_ylim()
    assert (bottom, top) == (pytest.approx(1e-4), pytest.approx(3))


@pytest.mark.parametrize(
    "means", [(0.0, 0.0), (1.0, 0.0), (INF, 1.0, 1e-3), (INF, INF), (NAN, 1.0)]
)
def test_extreme_losses_can_be_drawn(means, tmp_path):
    picture = plot_learning_curves({"one": curve(*means, error=0.0)})
    picture.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 0


def test_a_learner_that_diverges_leaves_the_others_visible():
    axes = plot_learning_curves({"one": curve(1.0, 0.5), "wild": curve(1.0, INF)}).axes[0]
    bottom, top = axes.get_ylim()
    assert bottom < 0.5 < 1.0 < top < 10


def test_measured_curves_can_be_drawn(tmp_path):
    task = LinearRegression.isotropic(2, 4)
    curves = {
        type(learner).__name__: learning_curve(learner, task, samples=50, generator=seeded())
        for learner in (Zero(), LeastSquares())
    }
    picture = plot_learning_curves(curves)
    zero, exact = picture.axes[0].get_lines()
    assert len(zero.get_xdata()) == len(exact.get_xdata()) == 5
    for name in ("curve.png", "curve.svg", "curve.pdf"):
        picture.savefig(tmp_path / name)


def test_no_curve_at_all_is_refused():
    with pytest.raises(ValueError, match="curves must hold at least one learner's curve, got none"):
        plot_learning_curves({})
