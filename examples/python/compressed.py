"""Enqueues one large event with a compressed body, with psycopg 3 and zstandard."""

import json
import os

import psycopg
import zstandard


def enqueue_compressed(connection, articles):
    """Enqueues CatalogPublished in the open transaction. Receivers get the JSON, not the frame."""
    content = json.dumps({"articles": articles}).encode()
    # One call, so that the frame states the size of its content. A streamed frame does not.
    frame = zstandard.ZstdCompressor().compress(content)
    id, _ = connection.execute(
        """
        select id, is_new from pillarbox.enqueue(
            namespace => 'shop', topic => 'catalog', event_type => 'CatalogPublished',
            body => %s, content_type => 'application/json', content_encoding => 'zstd')
        """,
        [frame],
    ).fetchone()
    return id, len(content), len(frame)


def main():
    articles = [{"article": f"tea-{number}", "price": "4.20"} for number in range(50_000)]
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:  # commits at its end
        id, content, frame = enqueue_compressed(connection, articles)
    if frame > content / 5:
        raise SystemExit(f"check failed: {content} bytes became {frame}")
    print(f"enqueued {id} CatalogPublished")
    print(f"compressed {content} bytes to {frame}")


if __name__ == "__main__":
    main()
