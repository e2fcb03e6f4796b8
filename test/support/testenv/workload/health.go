// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"time"
)

// serving is the response to a health check, with the framing of gRPC: an uncompressed message of two bytes, whose
// field status is SERVING (gRPC: gRPC over HTTP2, Health Checking Protocol).
const serving = "\x00\x00\x00\x00\x02\x08\x01"

// health responds to gRPC health checks for any service. It is written without a library, which would be many times
// the size of the program.
func health(args []string) error {
	address := ":9090"
	if len(args) > 0 {
		address = args[0]
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if r.URL.Path != "/grpc.health.v1.Health/Check" {
			w.Header().Set("Grpc-Status", "12") // status 12 means that the method is not implemented
			return
		}
		_, _ = w.Write([]byte(serving))
		w.Header().Set("Grpc-Status", "0")
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	return server.ListenAndServe()
}
