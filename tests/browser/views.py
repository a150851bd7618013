"""How far an explorer on the page has come."""

from __future__ import annotations


def state(view):
    """The element that says how far the explorer's answer to the last edit has come."""
    return view.get_by_test_id("level").locator("[data-level]")


def settled(view, since: int, level="compiled"):
    """Waits until the explorer has answered an edit made after its `since`-th, at a level."""
    from playwright.sync_api import expect

    expect(state(view)).not_to_have_attribute("data-seq", str(since), timeout=60_000)
    expect(state(view)).to_have_attribute("data-level", level, timeout=60_000)
    expect(state(view)).to_have_attribute("data-busy", "false", timeout=60_000)


def unfold(view):
    """Opens the lists of inputs and outputs, which are folded where they are long."""
    for what in ("inputs", "outputs"):
        button = view.get_by_test_id(f"open-{what}")
        if button.get_attribute("aria-expanded") == "false":
            button.click()


def edits(view) -> int:
    """The number of the last edit that the kernel has answered."""
    return int(state(view).get_attribute("data-seq"))


def go(view, name):
    """Goes to a view by its tab, as a person does."""
    if not view.get_by_test_id(f"tab-{name}").is_visible():
        view.get_by_test_id("more").click()
    view.get_by_test_id(f"tab-{name}").click()
