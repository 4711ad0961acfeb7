"""Charges each order once. Any number of these share the partitions of the topic."""

import json
import os

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException

from partbox import inbox

TABLE = "create table if not exists charge (order_id text, total int)"
CHARGE = "insert into charge values (%s, %s)"


def charge(conn, message):
    """In one transaction with the note that the event was seen."""
    headers = {name: value.decode() for name, value in message.headers()}
    order, total = message.key().decode(), json.loads(message.value())["total"]
    with conn.transaction():
        if inbox.first_time(conn, headers["ce_id"], "billing"):
            conn.execute(CHARGE, (order, total))
            print(f"order {order} is charged {total}", flush=True)
        else:
            print(f"order {order} has come again", flush=True)


def messages(consumer):
    """As they come. That the topic is not there yet is no error: the relay makes it with the first event."""
    while True:
        message = consumer.poll(1.0)
        if message is None or ((error := message.error()) and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
            continue
        if error:
            raise KafkaException(error)
        yield message


def main():
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 5_000,  # how long it may take to see a topic that is new
        }
    )
    consumer.subscribe(["order-events"])
    with psycopg.connect(os.environ["BILLING"], autocommit=True) as conn:
        conn.execute(TABLE)
        for message in messages(consumer):
            charge(conn, message)
            consumer.commit(message, asynchronous=False)


if __name__ == "__main__":
    main()
