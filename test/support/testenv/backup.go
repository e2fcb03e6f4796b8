// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// etcd sends a request to the HTTP gateway of etcd's API.
func (c *Cluster) etcd(ctx context.Context, method, body string) (io.ReadCloser, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.path(strings.TrimPrefix(etcdSocket, "unix://")))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/"+method, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("etcd answers %s: %s", response.Status, text), response.Body.Close())
	}
	return response.Body, nil
}

// Compact removes the history of all objects from etcd, which can then no longer resume a watch from an older revision.
func (c *Cluster) Compact(ctx context.Context) error {
	response, err := c.etcd(ctx, "maintenance/status", "{}")
	if err != nil {
		return fmt.Errorf("asking etcd of cluster %s for its revision, %w", c.opts.Name, err)
	}
	var status struct{ Header struct{ Revision string } }
	err = json.NewDecoder(response).Decode(&status)
	if err := errors.Join(err, response.Close()); err != nil {
		return fmt.Errorf("asking etcd of cluster %s for its revision, %w", c.opts.Name, err)
	}
	response, err = c.etcd(ctx, "kv/compaction", fmt.Sprintf(`{"revision":%q}`, status.Header.Revision))
	if err != nil {
		return fmt.Errorf("compacting etcd of cluster %s, %w", c.opts.Name, err)
	}
	return response.Close()
}

// Backup writes a snapshot of etcd to a new file, as `etcdctl snapshot save` does.
func (c *Cluster) Backup(ctx context.Context, path string) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	response, err := c.etcd(ctx, "maintenance/snapshot", "{}")
	if err != nil {
		return fmt.Errorf("backing up etcd of cluster %s, %w", c.opts.Name, err)
	}
	defer func() { _ = response.Close() }()
	for parts := json.NewDecoder(response); ; {
		var part struct {
			Result struct{ Blob []byte }
			Error  *struct{ Message string }
		}
		err := parts.Decode(&part)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && part.Error != nil:
			err = errors.New(part.Error.Message)
		}
		if err != nil {
			return fmt.Errorf("backing up etcd of cluster %s, %w", c.opts.Name, err)
		}
		if _, err := file.Write(part.Result.Blob); err != nil {
			return err
		}
	}
}

// Restore restores a backup as an administrator would: the control plane is stopped, `etcdutl snapshot restore`
// creates a new data folder, and the control plane is started with it. Processes of StartCommand keep running.
// Restore returns when the API server is ready.
func (c *Cluster) Restore(ctx context.Context, backup string, flags ...string) error {
	_, simulates := c.Processes()["kwok"]
	c.stopComponents()
	if err := os.RemoveAll(c.path("etcd")); err != nil {
		return err
	}
	restore := exec.CommandContext(ctx, c.tools.Etcdutl, append([]string{"snapshot", "restore", backup, "--data-dir=" + c.path("etcd"),
		"--name=etcd", "--initial-cluster=etcd=" + etcdPeerSocket, "--initial-advertise-peer-urls=" + etcdPeerSocket}, flags...)...)
	if out, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("restoring etcd of cluster %s, %w: %s", c.opts.Name, err, out)
	}
	if err := c.run("etcd", c.tools.Etcd, c.etcdArgs()); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.startControllers(); err != nil || !simulates {
		return err
	}
	return c.startKwok(ctx)
}

func (c *Cluster) stopComponents() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range components {
		if p := c.processes[name]; p != nil {
			p.Kill()
			delete(c.processes, name)
		}
	}
}
