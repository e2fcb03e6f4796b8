// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"k8s.io/client-go/util/cert"

	"github.com/refract-project/refract/internal/image"
	"github.com/refract-project/refract/test/support/testenv/registry"
)

// debianPrograms maps the paths in the images to the programs that are installed from Debian's packages, in addition to
// busybox. `make conformance-tools` installs the packages.
var debianPrograms = map[string]string{
	"bash": "bash", "curl": "curl", "dig": "dig", "getent": "getent", "ipcs": "ipcs", "nc.openbsd": "nc", "nslookup": "nslookup", "ss": "ss",
}

// suiteImages contains the images of the suite that the lab provides. They all contain the files of agnhost, but have
// different commands. Images with other programs (perl, etcd, sample-apiserver, resource-consumer, NFS and iSCSI
// servers, storage drivers) and images from private registries are missing. Tests that need them fail on both nodes.
var suiteImages = map[string]v1.Config{
	"e2e-test-images/agnhost:2.63.0":          {Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}},
	"e2e-test-images/agnhost:2.55":            {Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}},
	"e2e-test-images/busybox:1.37.0-1":        {Cmd: []string{"sh"}},
	"e2e-test-images/glibc-dns-testing:2.0.0": {Cmd: []string{"sh"}},
	"e2e-test-images/ipc-utils:1.4":           {Cmd: []string{"sh"}},
	"e2e-test-images/kitten:1.8":              {Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
	"e2e-test-images/nautilus:1.8":            {Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
	"e2e-test-images/nginx:1.15-4":            {Cmd: []string{"/agnhost", "test-webserver"}},
	"e2e-test-images/nginx:1.27-0":            {Cmd: []string{"/agnhost", "test-webserver"}},
	"e2e-test-images/nonewprivs:1.4":          {Cmd: []string{"nnp"}},
	"e2e-test-images/nonroot:1.5":             {Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, User: "1234"},
	"pause:3.10.2":                            {Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}},
}

// addedFiles contains an additional file for images that would otherwise be identical.
var addedFiles = map[string]image.File{
	"e2e-test-images/kitten:1.8":   {Path: "data.json", Mode: 0o644, Content: []byte(`{"image": "kitten.jpg"}`)},
	"e2e-test-images/nautilus:1.8": {Path: "data.json", Mode: 0o644, Content: []byte(`{"image": "nautilus.jpg"}`)},
}

var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// pushImages builds the images of the suite from the binaries in the folder programs, and pushes them to the registry.
// Their names are the names that the suite uses, without the host of the original registry.
func pushImages(ctx context.Context, to *registry.Registry, programs string) error {
	files, err := imageFiles(ctx, programs)
	if err != nil {
		return err
	}
	base, err := image.New(image.Spec{Platform: platform, Files: files, Made: "conformance", Fast: true})
	if err != nil {
		return err
	}
	for name, config := range suiteImages {
		config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		img, err := mutate.Config(base, config)
		if err != nil {
			return err
		}
		if file, ok := addedFiles[name]; ok {
			if img, err = appendFile(img, file); err != nil {
				return err
			}
		}
		if err := to.Push(ctx, name, img); err != nil {
			return fmt.Errorf("storing the image %s, %w", name, err)
		}
	}
	return nil
}

// checkImages returns an error if the suite does not use one of these images any more, because the versions of images
// change with the version of Kubernetes.
func checkImages(ctx context.Context, suite string) error {
	list := exec.CommandContext(ctx, suite, "--list-images")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the images of the suite, %w", err)
	}
	used := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "/") // remove the host of the registry
		used[name] = true
	}
	for name := range suiteImages {
		if !used[name] {
			return fmt.Errorf("the suite does not use the image %s: correct suiteImages by what %s prints", name, list)
		}
	}
	return nil
}

// appendFile adds a file to an image, in a separate layer.
func appendFile(base v1.Image, file image.File) (v1.Image, error) {
	added, err := image.New(image.Spec{Platform: platform, Files: []image.File{file}, Made: "conformance", Fast: true})
	if err != nil {
		return nil, err
	}
	layers, err := added.Layers()
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layers...)
}

// imageFiles returns the files of the agnhost image that can be built from its sources or taken from Debian.
func imageFiles(ctx context.Context, tools string) ([]image.File, error) {
	files, err := registry.BusyboxFiles(ctx)
	if err != nil {
		return nil, err
	}
	for i := range files {
		switch files[i].Path {
		case "etc/passwd":
			files[i].Content = append(files[i].Content, "user-defined-in-image:x:1000:1000::/:/bin/sh\n"...)
		case "bin/sh": // The shell in Debian's busybox would run its built-in nc instead of the nc in the path.
			files[i].Link = "../usr/bin/bash"
		}
	}
	// agnhost's subcommand porter uses this certificate and key.
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, err
	}
	files = append(files,
		image.File{Path: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")},
		image.File{Path: "etc/nsswitch.conf", Mode: 0o644, Content: []byte("hosts: files dns\n")},
		image.File{Path: "localhost.crt", Mode: 0o644, Content: certificate},
		image.File{Path: "localhost.key", Mode: 0o644, Content: key},
		image.File{Path: "uploads", Mode: 0o755, Dir: true},
		image.File{Path: "index.html", Mode: 0o644, Content: []byte("<title>Welcome to nginx!</title>\n")},
		image.File{Path: "agnhost-2", Link: "agnhost"})
	for _, binary := range []struct {
		name, path string
		mode       int64
	}{{"agnhost", "agnhost", 0o755}, {"nonewprivs", "usr/local/bin/nnp", 0o4755}} {
		content, err := os.ReadFile(filepath.Join(tools, binary.name))
		if err != nil {
			return nil, fmt.Errorf("%w (make conformance-tools builds it)", err)
		}
		files = append(files, image.File{Path: binary.path, Mode: binary.mode, Content: content})
	}
	added, err := programFiles(ctx)
	return append(files, added...), err
}

var sharedObject = regexp.MustCompile(`/\S+\.so\S*`)

// programFiles returns Debian's programs and their shared libraries. Each library has the path from which the programs
// load it.
func programFiles(ctx context.Context) ([]image.File, error) {
	content := map[string]string{} // source files by path in the image
	for program, name := range debianPrograms {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("%w (make conformance-tools installs it)", err)
		}
		content["usr/bin/"+name] = path
		linked, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return nil, fmt.Errorf("listing the shared objects of %s, %w", path, err)
		}
		for _, object := range sharedObject.FindAllString(string(linked), -1) {
			content[strings.TrimPrefix(object, "/")] = object
		}
	}
	var files []image.File
	for path, source := range content {
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		files = append(files, image.File{Path: path, Mode: 0o755, Content: data})
	}
	return files, nil
}
