"""After `%load_ext shardviz` a `jax.Array` shows its sharding beside its values, as long as the extension is loaded."""

import json

import pytest

from tests.truth import answers_of

SCRIPT = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from IPython.core.interactiveshell import InteractiveShell
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

shell = InteractiveShell.instance()
treescope = sys.argv[1:] == ["treescope"]
if treescope:
    import treescope
    treescope.register_as_default(streaming=False)
shows = lambda thing: shell.display_formatter.format(thing)[0]
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
own = lambda shape, *spec: jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))
small, large, single, gone = own((8, 4), "data"), own((1024, 512), "data", "model"), jnp.ones(3), own((8, 4), "data")
gone.delete()
key = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, P("data")))
things = {"small": small, "large": large, "single": single, "inside": [small], "key": key, "number": 1.5}
before = {name: shows(thing) for name, thing in things.items() if name != "large"}
values = large._npy_value
shell.run_line_magic("load_ext", "shardviz")
after = {name: shows(thing) for name, thing in things.items()}
fetched = large._npy_value is not None
errors = []
shell.showtraceback = lambda exc=None, *_, **__: errors.append(str((exc or sys.exc_info())[1]))
after["gone"] = shows(gone)
shell.run_line_magic("unload_ext", "shardviz")
undone = {name: shows(thing) for name, thing in things.items() if name != "large"}
magics = [kind for kind, names in shell.magics_manager.magics.items() if {"shard", "dryrun"} & names.keys()]
json.dump({"before": before, "after": after, "undone": undone, "fetched": fetched, "magics": magics}, sys.stdout)
"""


@pytest.fixture(scope="module")
def said():
    return json.loads(answers_of("-W", "ignore", "-c", SCRIPT, devices=8))


def test_the_sharding_is_beside_the_values(said):
    text, html = (said["after"]["small"][f"text/{kind}"] for kind in ("plain", "html"))
    assert text.startswith(said["before"]["small"]["text/plain"])
    assert "[8, 4] P('data', None) · shard [2, 4] · mesh data=4,model=2, 8 devices" in text and "0-1 ×2" in text
    assert "[1., 1., 1., 1.]" in html and 'title="[0:2, :] on devices 0-1' in html and html.count("<td") > 2
    assert said["after"]["single"]["text/plain"].endswith("\non one device, cpu:0")


def test_large_values_are_not_fetched(said):
    assert not said["fetched"]
    text = said["after"]["large"]["text/plain"]
    assert text.startswith("Array(float32[1024, 512], 2.10 MB: values not fetched)\n\nfloat32, 262 kB per device\n")


def test_what_is_no_result_or_no_array_is_as_before(said):
    for name in ("inside", "number"):
        assert said["after"][name] == said["before"][name]
    assert "P('data')" in said["after"]["key"]["text/plain"], "a PRNG key is an array too"
    assert "text/html" not in said["after"]["gone"], "a deleted array has no values, and fails as before"


def test_unloading_undoes_all(said):
    assert said["undone"] == said["before"] and said["magics"] == []


def test_treescope_shows_the_values_where_it_is_the_default():
    pytest.importorskip("treescope")
    said = json.loads(answers_of("-W", "ignore", "-c", SCRIPT, "treescope", devices=8))
    html = said["after"]["small"]["text/html"]
    assert "treescope" in html and 'title="[0:2, :] on devices 0-1' in html
    assert "treescope" in said["after"]["number"]["text/html"] and "treescope" in said["undone"]["small"]["text/html"]
