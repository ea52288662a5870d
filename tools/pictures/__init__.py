"""The pictures of docs/pictures, drawn as SVG from what is written here.

Plain SVG by hand, because a drawing of six boxes needs neither a layout engine nor a script in the
reader's browser, and its colours must follow the page's, light or dark.
"""

from tools.pictures import bars, scenes

#: Each picture's file below docs/pictures, and what draws it.
PICTURES = {
    "processes.svg": scenes.processes,
    "way-of-a-record.svg": scenes.way_of_a_record,
    "commit.svg": scenes.commit,
    "states.svg": scenes.states,
    "connections.svg": scenes.connections,
    "secrets.svg": scenes.secrets,
    "benchmark-spark.svg": bars.spark,
    "benchmark-engine.svg": bars.engine,
}
