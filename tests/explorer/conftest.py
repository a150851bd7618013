"""A program that needs no JAX."""

from tests.explorer.fake_program import a_plan, a_program, installed_compilers, programs  # noqa: F401 - fixtures
