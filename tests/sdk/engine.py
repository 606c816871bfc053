"""A search engine in the manner of SearXNG, and the one page that it finds.

A search that is not as SearXNG documents it is remembered.
"""

from urllib.parse import parse_qs, urlsplit

from serving import Handler, Record, serve

PAGE = """<!doctype html><html><head><title>Oslo</title></head><body><article><h1>Oslo</h1>
<p>The capital of Norway is Oslo, which lies at the end of the Oslofjord and has had that name again since 1925.</p>
<p>Before, and for three hundred years, it was called Christiania after the king who had it built anew after a fire.</p>
</article></body></html>
"""


class Engine(Handler):
    """The engine and the site."""

    record = Record()

    def get(self, path):
        asked = urlsplit(path)
        if asked.path == "/search":
            self.search(parse_qs(asked.query))
        elif asked.path == "/oslo":
            body = PAGE.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.not_found(path)

    def search(self, parameters):
        if parameters.get("format") != ["json"] or not parameters.get("q"):
            self.violated(f"a search without `q` or `format=json`: {parameters}")
            return
        host, port = self.server.server_address
        hit = {"url": f"http://{host}:{port}/oslo", "title": "Oslo", "content": "About Oslo.", "engine": "scripted"}
        self.send_json(200, {"query": parameters["q"][0], "results": [hit], "unresponsive_engines": []})


if __name__ == "__main__":
    serve(Engine)
