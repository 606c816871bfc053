# A small image with the one binary, run by a user without rights:
#
#     docker build -t loopwright .
#     docker run -p 127.0.0.1:8080:8080 -v loopwright:/data \
#       -e LOOPWRIGHT_UPSTREAM=http://models.corp:8000/v1 -e LOOPWRIGHT_API_KEY="$(openssl rand -hex 32)" \
#       -v ./docker/loopwright.toml:/etc/loopwright.toml:ro loopwright serve --config /etc/loopwright.toml
#
# Without any API key loopwright refuses to listen on an address that the network can reach, and inside a container every
# published port is one: the file above names the variable that holds the key. docker/compose.yml does all of this.
# The demo: docker run --rm --network host loopwright demo

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# What cargo downloads and builds is kept between builds; the binary is copied out, as these mounts are not in the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --bin loopwright \
    && install -D target/dist/loopwright /out/loopwright \
    && mkdir /out/data

# The same Debian release as above, for its C library; certificate authorities, and no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/loopwright /usr/local/bin/loopwright
# A new volume takes over the owner of the directory that it is mounted on.
COPY --from=build --chown=nonroot:nonroot /out/data /data
# The default session store, sqlite:loopwright.db, lies in the working directory.
WORKDIR /data
VOLUME /data
EXPOSE 8080
# No HEALTHCHECK: there is nothing in the image to ask with. Let the orchestrator probe /healthz and /readyz.
ENTRYPOINT ["/usr/local/bin/loopwright"]
CMD ["serve", "--listen", "0.0.0.0:8080"]
