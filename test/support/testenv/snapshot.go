// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ownLeases is the prefix of the keys of the leases that the components of a control plane renew.
const ownLeases = "/registry/leases/kube-system/"

// Snapshot holds the objects of a cluster at one moment, as they are stored. See Cluster.Rewind.
type Snapshot struct{ entries map[string]entry }

// entry is a stored object, and the revision of its last write.
type entry struct {
	value    []byte
	revision string
}

// Snapshot reads all objects of the cluster, except the leases in kube-system.
func (c *Cluster) Snapshot(ctx context.Context) (*Snapshot, error) {
	entries, err := c.readEntries(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("reading the objects of cluster %s, %w", c.opts.Name, err)
	}
	return &Snapshot{entries}, nil
}

// Rewind restores the objects of a snapshot of the same cluster, so that several tests can share a control plane one
// after the other. The components observe the changes in their watches a moment later. A snapshot can be restored
// several times, but not by two goroutines at once. Services with a node port must be deleted first, because the API
// server also has the allocated ports in memory.
func (c *Cluster) Rewind(ctx context.Context, to *Snapshot) error {
	now, err := c.readEntries(ctx, true)
	for key := range now {
		if _, kept := to.entries[key]; err == nil && !kept {
			_, err = c.callEtcd(ctx, "kv/deleterange", map[string][]byte{"key": []byte(key)})
		}
	}
	for key, stored := range to.entries {
		if err == nil && now[key].revision != stored.revision {
			stored.revision, err = c.callEtcd(ctx, "kv/put", map[string][]byte{"key": []byte(key), "value": stored.value})
			to.entries[key] = stored
		}
	}
	if err != nil {
		return fmt.Errorf("rewinding cluster %s, %w", c.opts.Name, err)
	}
	return nil
}

// callEtcd changes a key, and returns the revision of the change.
func (c *Cluster) callEtcd(ctx context.Context, method string, request map[string][]byte) (revision string, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	response, err := c.etcd(ctx, method, string(body))
	if err != nil {
		return "", err
	}
	var result struct{ Header struct{ Revision string } }
	err = json.NewDecoder(response).Decode(&result)
	return result.Header.Revision, errors.Join(err, response.Close())
}

// readEntries reads all objects, or only their keys and revisions. It leaves out the leases in kube-system.
func (c *Cluster) readEntries(ctx context.Context, withoutValues bool) (map[string]entry, error) {
	encode := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }
	// The range ends with the last key that begins with "/registry/".
	request := fmt.Sprintf(`{"key":%q,"range_end":%q,"keys_only":%t}`, encode("/registry/"), encode("/registry0"), withoutValues)
	response, err := c.etcd(ctx, "kv/range", request)
	if err != nil {
		return nil, err
	}
	var result struct {
		KVs []struct {
			Key, Value []byte
			Revision   string `json:"mod_revision"`
		}
	}
	err = json.NewDecoder(response).Decode(&result)
	if err := errors.Join(err, response.Close()); err != nil {
		return nil, err
	}
	entries := map[string]entry{}
	for _, kv := range result.KVs {
		if !strings.HasPrefix(string(kv.Key), ownLeases) {
			entries[string(kv.Key)] = entry{kv.Value, kv.Revision}
		}
	}
	return entries, nil
}
