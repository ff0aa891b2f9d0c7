"""A receiver of OTLP metrics that takes nothing that the specification forbids.

    otlp.py OUT     prints its port; writes each request's points into OUT, one JSON object a line

What is wrong with a request is answered with 400, and printed.
"""

import gzip
import json
import math
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
)

# The last point of each series: start, time, value; and when those ended that have ended.
series = {}
ended = {}


class Wrong(Exception):
    pass


def must(condition, what):
    if not condition:
        raise Wrong(what)


def attributes(pairs, of):
    found = {}
    for pair in pairs:
        must(pair.key, f"{of}: an attribute without a name")
        must(pair.key not in found, f"{of}: {pair.key} twice")
        kind = pair.value.WhichOneof("value")
        must(kind, f"{of}: {pair.key} has no value")
        found[pair.key] = getattr(pair.value, kind)
    return found


def check_points(metric, resource):
    kind = metric.WhichOneof("data")
    must(kind in ("gauge", "sum"), f"{metric.name} is a {kind}")
    data = getattr(metric, kind)
    must(data.data_points, f"{metric.name} has no points")
    if kind == "sum":
        known = (AGGREGATION_TEMPORALITY_CUMULATIVE, AGGREGATION_TEMPORALITY_DELTA)
        must(data.aggregation_temporality in known, f"{metric.name} has no temporality")
    seen = set()
    for point in data.data_points:
        own = attributes(point.attributes, metric.name)
        name = (resource, metric.name, json.dumps(own, sort_keys=True))
        must(name not in seen, f"{metric.name}: {own} twice")
        seen.add(name)
        must(point.time_unix_nano > 0, f"{metric.name} has no time")
        if kind == "sum":
            must(point.start_time_unix_nano > 0, f"{metric.name} has no start")
        must(point.start_time_unix_nano <= point.time_unix_nano, f"{metric.name} starts after its time")
        value = point.WhichOneof("value")
        if point.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            must(value is None, f"{metric.name} has a value and says that it has none")
            series.pop(name, None)
            ended[name] = point.time_unix_nano
            yield {"metric": metric.name, "unit": metric.unit, "attributes": own, "value": None}
            continue
        must(value, f"{metric.name} has no value")
        number = getattr(point, value)
        must(math.isfinite(number), f"{metric.name} is {number}")
        before = series.get(name)
        if before:
            must(point.time_unix_nano > before[1], f"{metric.name}: time does not go on")
        if kind == "sum" and data.is_monotonic and before:
            if data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE:
                must(point.start_time_unix_nano == before[0], f"{metric.name} has another start")
                must(number >= before[2], f"{metric.name} falls from {before[2]} to {number}")
            else:
                must(point.start_time_unix_nano == before[1], f"{metric.name} has a gap")
                must(number >= 0, f"{metric.name} falls by {number}")
        if kind == "sum" and name in ended and data.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA:
            must(not data.is_monotonic or point.start_time_unix_nano >= ended[name], f"{metric.name} overlaps its end")
        series[name] = (point.start_time_unix_nano, point.time_unix_nano, number)
        yield {"metric": metric.name, "unit": metric.unit, "attributes": own, "value": number}


def check(request):
    must(request.resource_metrics, "no resource")
    for resource_metrics in request.resource_metrics:
        resource = attributes(resource_metrics.resource.attributes, "resource")
        must(resource.get("service.name"), "no service.name")
        must(resource_metrics.schema_url.startswith("https://opentelemetry.io/schemas/"), "no schema of the names")
        instance = resource.get("service.instance.id", "")
        for scope_metrics in resource_metrics.scope_metrics:
            must(scope_metrics.scope.name and scope_metrics.scope.version, "no scope")
            names = set()
            for metric in scope_metrics.metrics:
                must(metric.name and metric.name.isascii() and len(metric.name) <= 255, f"name {metric.name!r}")
                must(metric.name not in names, f"{metric.name} twice")
                names.add(metric.name)
                must(metric.unit.isascii() and len(metric.unit) <= 63, f"unit {metric.unit!r}")
                yield from check_points(metric, instance)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            must(self.path == "/v1/metrics", f"path {self.path}")
            must(self.headers["content-type"] == "application/x-protobuf", "content-type")
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            request = ExportMetricsServiceRequest()
            must(request.ParseFromString(body) == len(body), "bytes left over")
            points = list(check(request))
        except Exception as error:
            print(f"wrong: {error}", flush=True)
            self.answer(400, b"")
            return
        with open(sys.argv[1], "a", encoding="utf-8") as out:
            out.writelines(json.dumps(point) + "\n" for point in points)
        self.answer(200, ExportMetricsServiceResponse().SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
