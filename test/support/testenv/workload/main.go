// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command workload runs in pods on the real nodes of tests:
//
//	workload pause                               hold the namespaces of a pod
//	workload serve [--backend=URL] [ADDR]        answer HTTP requests, by default on :8080, with the name of the
//	                                             pod, and the answer of the backend
//	workload health [ADDR]                       answer gRPC health checks, by default on :9090
//	workload get [--token=FILE] [--times=N] URL  print the answer of a URL, with a bearer token from the file
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// client is the HTTP client of get, and of serve for its requests to the backend. Each request uses a new connection,
// so that the Service chooses a pod each time.
var client = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func main() {
	verb := "pause"
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	var err error
	switch verb {
	case "pause":
		pause()
	case "serve":
		err = serve(os.Args[2:])
	case "health":
		err = health(os.Args[2:])
	case "get":
		err = get(os.Args[2:])
	default:
		err = fmt.Errorf("unknown: %s", verb)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

// pause waits for SIGTERM or SIGINT. It reaps orphaned processes of the pod, which become its children if the pod
// shares a PID namespace.
func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 {
				break
			}
		}
	}
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	backend := flags.String("backend", "", "URL that is asked for each request")
	_ = flags.Parse(args)
	address := ":8080"
	if flags.NArg() > 0 {
		address = flags.Arg(0)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s from %s", r.Method, r.URL.Path, r.RemoteAddr)
		answer := fmt.Sprintf("pod=%s node=%s", host, os.Getenv("NODE"))
		if *backend != "" {
			behind, err := fetch(*backend, "")
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			answer += " behind: " + strings.TrimSpace(behind)
		}
		_, _ = fmt.Fprintln(w, answer)
	})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background())
	}()
	log.Printf("serving on %s", address)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func get(args []string) error {
	flags := flag.NewFlagSet("get", flag.ExitOnError)
	file := flags.String("token", "", "file with a bearer token")
	times := flags.Int("times", 1, "how many requests to make, one after the other")
	_ = flags.Parse(args)
	var token []byte
	if *file != "" {
		var err error
		if token, err = os.ReadFile(*file); err != nil {
			return err
		}
	}
	for range *times {
		body, err := fetch(flags.Arg(0), string(token))
		fmt.Print(body)
		if err != nil {
			return err
		}
	}
	return nil
}

func fetch(url, token string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, response.Status)
	}
	return string(body), err
}
