import subprocess
import sys

from app.localdev import descendants

TREE = """
import subprocess, sys
if sys.argv[1] == "0":
    print("ready", flush=True)
    sys.stdin.read()
else:
    subprocess.run([sys.executable, "-c", sys.argv[2], "0", sys.argv[2]])
"""


def test_children_and_their_children_are_found():
    command = [sys.executable, "-c", TREE, "1", TREE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        top.stdout.readline()
        found = descendants.descendants_of(top.pid)
        assert len(found) == 1
        assert descendants.descendants_of(found[0]) == []
        assert top.stdin is not None
        top.stdin.close()
        descendants.wait_until_ended(found, 30)
    assert descendants.descendants_of(top.pid) == []


def test_both_sources_agree_on_this_process_tree():
    from_proc = {(p.pid, p.parent) for p in descendants._from_proc()}
    from_ps = {(p.pid, p.parent) for p in descendants._from_ps()}
    assert len(from_proc & from_ps) > 1
