// A relay between a client and a server that breaks the first connection off at a chosen place.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** Whether a request with a `content-length` has come to its end. */
function isWhole(request) {
  const head = request.indexOf('\r\n\r\n');
  const length = /^content-length: *(\d+)/im.exec(request.subarray(0, Math.max(head, 0)).toString());
  return head >= 0 && request.length >= head + 4 + Number(length?.[1] ?? 0);
}

/**
 * Starts a relay to the server of a base URL. `cut`: how many bytes of the first answer pass; -1: the connection ends
 * with the request; `null`: all of them. Every connection but the first passes whole.
 */
export async function relayTo(base, cut) {
  const target = new URL(base);
  const relay = { connections: 0, passed: 0 };
  const sockets = new Set();
  const server = createServer((client) => {
    const first = relay.connections++ === 0;
    const upstream = connect(Number(target.port), target.hostname);
    const end = () => {
      client.resetAndDestroy();
      upstream.resetAndDestroy();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      // What breaks off breaks off: the other side is told by the end of its own connection.
      socket.on('error', () => {});
      socket.on('close', () => (sockets.delete(socket), client.destroy(), upstream.destroy()));
    }
    let request = Buffer.alloc(0);
    client.on('data', (data) => {
      request = Buffer.concat([request, data]);
      upstream.write(data, () => {
        if (first && cut === -1 && isWhole(request)) end();
      });
    });
    upstream.on('data', (data) => {
      const left = first && cut !== null && cut >= 0 ? cut - relay.passed : data.length;
      const part = data.subarray(0, left);
      if (first) relay.passed += part.length;
      client.write(part, () => {
        if (first && cut !== null && cut >= 0 && relay.passed >= cut) end();
      });
    });
    client.on('end', () => upstream.end());
    upstream.on('end', () => client.end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  relay.url = `http://127.0.0.1:${server.address().port}${target.pathname}`;
  relay.close = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return relay;
}
