"""Fixtures that several folders of tests share."""

from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no property test is judged by the clock.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("unhurried")

pytest_plugins = ["doubles.docker_daemons"]
