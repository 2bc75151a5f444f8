"""`overdrive.Policy`: a mistake is seen where it is made."""

import overdrive
import pytest
from overdrive.policy import POLICIES, Policy


def test_the_defaults_are_the_documented_ones():
    policy = Policy()
    assert (policy.call_rate_weight, policy.cpu_share_weight, policy.complexity_weight) == (0.40, 0.35, 0.25)
    assert (policy.threshold, policy.windows, policy.window, policy.rate) == (85, 3, 0.5, 200)
    assert policy.max_compiles == 4
    assert not policy.eager
    assert not policy.observe


def test_named_policies():
    assert POLICIES == ("default", "eager", "observe")
    assert Policy.named("default") == Policy()
    assert Policy.named("eager").eager
    assert Policy.named("observe").observe
    with pytest.raises(ValueError, match="unknown policy 'fast': use 'default', 'eager', 'observe'"):
        overdrive.start("fast")


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 101},
        {"windows": 0},
        {"window": 0},
        {"rate": 0},
        {"rate": 10_000},
        {"max_compiles": 0},
        {"least_gain": -1},
        {"call_rate_weight": 0.5},
        {"cpu_share_weight": float("nan")},
        {"window": float("inf")},
    ],
)
def test_values_out_of_range(change):
    with pytest.raises(ValueError, match="Policy"):
        Policy(**change)


def test_a_policy_does_not_change():
    with pytest.raises(AttributeError):
        Policy().threshold = 1


def test_wrong_types():
    with pytest.raises(TypeError, match="policy must be a str or a Policy, not int"):
        overdrive.start(3)
    with pytest.raises(TypeError, match="only holds names as str, not int"):
        overdrive.start(only=[1])
