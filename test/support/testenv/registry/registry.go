// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package registry serves the images of the pods on real nodes.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	gcrregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/refract-project/refract/internal/image"
	"github.com/refract-project/refract/test/support/testenv/machine"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// registryPort is the port at which nodes access the registry.
const registryPort = 5000

// Registry is a registry of container images in memory. Nodes on a Network can access it, and this computer on
// loopback. Initially it contains
//
//	pause:1      holds the namespaces of a pod
//	coredns:1
//	metrics-server:1
//	busybox:1    Debian's, with all its applets
//	web:1        busybox, and the program workload, which serves HTTP on port 8080 by default (also as web:latest)
//
// Nodes pull all images from it, regardless of the registry in their names. For example,
// registry.example.com/shop/web:1 is stored as shop/web:1. Each image is also available under private/, as
// registry.example.com/private/shop/web:1, but only with PullUser and PullPassword.
type Registry struct {
	network string // address of the registry for nodes
	local   string // address of the registry for this computer
	servers []*http.Server
}

// New starts a registry. The caller must close it.
func New(ctx context.Context, network *machine.Network) (_ *Registry, err error) {
	r := &Registry{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting a registry, %w", err), r.Close())
		}
	}()
	inside, err := network.Listen(registryPort)
	if err != nil {
		return nil, err
	}
	outside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, inside.Close())
	}
	r.network, r.local = inside.Addr().String(), outside.Addr().String()
	handler := gcrregistry.New(gcrregistry.Logger(log.New(io.Discard, "", 0)))
	for listener, handler := range map[net.Listener]http.Handler{inside: withPrivate(handler), outside: handler} {
		server := &http.Server{Handler: handler} //nolint:gosec // not reachable from elsewhere
		r.servers = append(r.servers, server)
		go func() { _ = server.Serve(listener) }()
	}
	return r, r.fill(ctx)
}

// PullUser and PullPassword are the credentials for private images.
const PullUser, PullPassword = "puller", "a-secret-of-the-registry"

// withPrivate returns a handler that serves all images, and serves them to authenticated clients under private/, too.
func withPrivate(images http.Handler) http.Handler {
	const api = "/v2/"
	mux := http.NewServeMux()
	mux.Handle("/", images)
	mux.HandleFunc(api+"private/", func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != PullUser || password != PullPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="private images"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		http.StripPrefix(api+"private", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = strings.TrimSuffix(api, "/") + r.URL.Path
			images.ServeHTTP(w, r)
		})).ServeHTTP(w, r)
	})
	return mux
}

// Address returns the HTTP address at which this computer can access the registry.
func (r *Registry) Address() string { return r.local }

// NodeAddress returns the address at which nodes can access the registry.
func (r *Registry) NodeAddress() string { return r.network }

// Close stops the registry.
func (r *Registry) Close() error {
	var errs []error
	for _, server := range r.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// Push stores an image. Its name has no registry, for example shop/web:1.
func (r *Registry) Push(ctx context.Context, stored string, img v1.Image) error {
	tag, err := name.NewTag(r.local+"/"+stored, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(tag, img, remote.WithContext(ctx))
}

// PushFiles creates an image from files and stores it.
func (r *Registry) PushFiles(ctx context.Context, stored string, config v1.Config, files ...image.File) error {
	img, err := image.New(image.Spec{
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Files: files, Config: config, Made: "testenv", Fast: true,
	})
	if err != nil {
		return fmt.Errorf("making the image %s, %w", stored, err)
	}
	return r.Push(ctx, stored, img)
}

// fill stores the images that nodes and tests need.
func (r *Registry) fill(ctx context.Context) error {
	node, err := tools.FindNode()
	if err != nil {
		return err
	}
	workload, err := buildWorkload(ctx)
	if err != nil {
		return err
	}
	busybox, err := BusyboxFiles(ctx)
	if err != nil {
		return err
	}
	program := image.File{Path: "bin/workload", Mode: 0o755, Content: workload}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return r.PushFiles(ctx, "pause:1", v1.Config{Entrypoint: []string{"/bin/workload", "pause"}}, program)
	})
	for _, tool := range []string{node.CoreDNS, node.MetricsServer} {
		group.Go(func() error {
			content, err := os.ReadFile(tool)
			if err != nil {
				return err
			}
			name := filepath.Base(tool)
			return r.PushFiles(ctx, name+":1", v1.Config{Entrypoint: []string{"/bin/" + name}}, image.File{Path: "bin/" + name, Mode: 0o755, Content: content})
		})
	}
	path := []string{"PATH=/bin"}
	group.Go(func() error {
		return r.PushFiles(ctx, "busybox:1", v1.Config{Cmd: []string{"/bin/sh"}, Env: path}, busybox...)
	})
	for _, tag := range []string{"1", "latest"} {
		group.Go(func() error {
			return r.PushFiles(ctx, "web:"+tag, v1.Config{Entrypoint: []string{"/bin/workload"}, Cmd: []string{"serve"}, Env: path}, append(busybox[:len(busybox):len(busybox)], program)...)
		})
	}
	return group.Wait()
}

// buildWorkload compiles the program that the test pods run, as a static binary.
func buildWorkload(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "refract-workload-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "workload")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/refract-project/refract/test/support/testenv/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the program of pods, %w: %s", err, out)
	}
	return os.ReadFile(path)
}

// BusyboxFiles returns Debian's busybox with a link for each of its applets, and other files that programs expect in
// an image.
func BusyboxFiles(ctx context.Context) ([]image.File, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("%w (make node-tools installs busybox-static)", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	applets, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("asking busybox for its applets, %w", err)
	}
	files := []image.File{
		{Path: "tmp", Mode: 0o1777, Dir: true},
		{Path: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")},
		{Path: "bin/busybox", Mode: 0o755, Content: content},
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			files = append(files, image.File{Path: "bin/" + applet, Link: "busybox"})
		}
	}
	return files, nil
}
