# The build stage has what scripts/build-release.sh needs; the final stage has the binary and
# certificates, and runs as nobody in particular. tests/image.rs follows this file as far as it can.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY scripts/build-release.sh scripts/
COPY benches benches
COPY tests/main.rs tests/
COPY src src
ENV CARGO_TARGET_DIR=/target
RUN scripts/build-release.sh

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /var/lib/fencegate --create-home fencegate
COPY --from=build /target/release/fencegate /usr/local/bin/fencegate
USER 10001
# The embedded database is written here, where the configuration's relative path begins.
WORKDIR /var/lib/fencegate
VOLUME /var/lib/fencegate
# The proxy, and the lease API. The default addresses are loopback: set proxy.listen, and
# admin.listen with admin.tokens, to be reached from outside the container.
EXPOSE 8080 8081
ENTRYPOINT ["/usr/local/bin/fencegate"]
CMD ["serve", "--config", "/etc/fencegate/fencegate.toml"]
