"""Reads what Pillarbox sent with the CloudEvents SDK for Python, and prints each event as a line of JSON.

    read.py http                          a server; the first line is its port
    read.py kafka BROKERS TOPIC COUNT     a consumer
    read.py amqp URL QUEUE COUNT          a consumer
    read.py nats, read.py redis           messages on standard input, a line of JSON each

An event that the SDK refuses ends the program with the SDK's own words.
"""

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from cloudevents.core.bindings import amqp, http, kafka, rabbitmq


def show(event):
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    attributes["time"] = event.get_time().isoformat()
    data = event.get_data()
    if isinstance(data, bytes):
        data = {"base64": base64.b64encode(data).decode()}
    print(json.dumps({"attributes": attributes, "data": data}), flush=True)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        show(http.from_http_event(http.HTTPMessage(dict(self.headers.items()), body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def serve():
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    print(server.server_port, flush=True)
    server.serve_forever()


def consume_kafka(brokers, topic, count):
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest")
    for _ in range(int(count)):
        record = next(consumer)
        message = kafka.KafkaMessage(dict(record.headers), record.key, record.value)
        show(kafka.from_kafka_event(message))


def consume_amqp(url, queue, count):
    import pika

    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    messages = channel.consume(queue, auto_ack=True)
    for _ in range(int(count)):
        _, properties, body = next(messages)
        message = amqp.AMQPMessage(
            properties={"content-type": properties.content_type},
            application_properties=properties.headers,
            application_data=body,
        )
        show(amqp.from_amqp_event(message))


def read_lines(read):
    for line in sys.stdin:
        message = json.loads(line)
        body = base64.b64decode(message["body"])
        show(read(message["headers"], message["content_type"], body))


def nats(headers, _, body):
    """The binding for NATS has the names and the encoding of the one for HTTP."""
    return http.from_http_event(http.HTTPMessage(headers, body))


def redis(headers, content_type, body):
    """There is no binding for Redis; its fields are as the SDK's headers for RabbitMQ."""
    return rabbitmq.from_rabbitmq_event(rabbitmq.RabbitMQMessage(headers, content_type, body))


match sys.argv[1:]:
    case ["http"]:
        serve()
    case ["kafka", *arguments]:
        consume_kafka(*arguments)
    case ["amqp", *arguments]:
        consume_amqp(*arguments)
    case ["nats"]:
        read_lines(nats)
    case ["redis"]:
        read_lines(redis)
    case _:
        sys.exit(__doc__)
