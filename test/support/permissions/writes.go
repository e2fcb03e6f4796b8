// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package permissions finds permissions of Refract's processes that no test uses. It compares the roles in package rbac
// with the writes in the audit logs of test clusters.
package permissions

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/refract-project/refract/api/wire"
)

// Identity is the identity of one of Refract's processes (see package rbac).
type Identity string

const (
	// Manager is the controller manager in its own cluster.
	Manager Identity = "the controller manager"
	// Kubelet is a virtual kubelet in its own cluster.
	Kubelet Identity = "a virtual kubelet"
	// Consumer is a consumer on a provider: its virtual kubelets and its controller manager.
	Consumer Identity = "a consumer"
	// Gateway is the gateway of a peering, or the agent on a node. The tests of the chart do not run them, so none of
	// their writes are recorded.
	Gateway Identity = "a gateway"
)

// userAgents are the prefixes of the user agents of Refract's processes. They distinguish these processes from
// refractctl, which may use the same identities.
var userAgents = []string{wire.ControllerManagerProcess + "/", wire.VirtualKubeletProcess + "/"}

// Write is the permission that the API server checked for a successful write.
type Write struct {
	Identity Identity
	Verb     string
	Group    string
	// Resource includes the subresource, such as "pods/status".
	Resource        string
	Namespace, Name string
}

// Groups returns the groups of the users of Refract's processes in a cluster. namespace is the namespace of the
// installation. peers are the IDs of the other clusters.
func Groups(namespace string, peers ...string) []string {
	groups := []string{"system:serviceaccounts:" + namespace}
	for _, peer := range peers {
		groups = append(groups, peer, "system:serviceaccounts:"+wire.TenantNamespace(peer))
	}
	return groups
}

// Record is a set of writes. The zero value is empty. It is safe for concurrent use.
type Record struct {
	mu     sync.Mutex
	writes map[Write]bool
}

// AddFile adds the writes in the audit log file at path.
func (r *Record) AddFile(path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the audit log, %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return r.Add(file)
}

// Add adds the writes in an audit log.
func (r *Record) Add(log io.Reader) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writes == nil {
		r.writes = map[Write]bool{}
	}
	for reader := bufio.NewReader(log); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without a newline is an entry that is still being written
		}
		if err != nil {
			return fmt.Errorf("reading the audit log, %w", err)
		}
		event := &auditv1.Event{}
		if err := json.Unmarshal(line, event); err != nil {
			return fmt.Errorf("reading the audit log, %w", err)
		}
		writes, err := writesOf(event)
		if err != nil {
			return fmt.Errorf("reading the audit log, %w", err)
		}
		for _, write := range writes {
			r.writes[write] = true
		}
	}
}

// writesOf returns the permissions that a request used. It returns none if the request only reads, has failed, or does
// not come from one of Refract's processes.
func writesOf(event *auditv1.Event) ([]Write, error) {
	ref, status := event.ObjectRef, event.ResponseStatus
	if reads(event.Verb) || ref == nil || status == nil || status.Code >= http.StatusBadRequest || !isProcess(event.UserAgent) {
		return nil, nil
	}
	write := Write{
		Identity: identityOf(event.User.Username), Verb: event.Verb, Group: ref.APIGroup, Resource: ref.Resource,
		Namespace: ref.Namespace, Name: ref.Name,
	}
	if ref.Subresource != "" {
		write.Resource += "/" + ref.Subresource
	}
	writes := []Write{write}
	if write.Verb == "patch" && status.Code == http.StatusCreated {
		// Server-side apply created the object.
		write.Verb = "create"
		writes = append(writes, write)
	}
	implied, err := impliedBy(event, write)
	return append(writes, implied...), err
}

// impliedBy returns the permissions that the API server checks additionally because of the content of a request: to
// bind a role, or to approve the certificates of a signer.
func impliedBy(event *auditv1.Event, write Write) ([]Write, error) {
	if event.RequestObject == nil {
		return nil, nil
	}
	switch write.Group + "/" + write.Resource {
	case rbacv1.GroupName + "/rolebindings", rbacv1.GroupName + "/clusterrolebindings":
		var binding struct{ RoleRef rbacv1.RoleRef }
		if err := json.Unmarshal(event.RequestObject.Raw, &binding); err != nil || binding.RoleRef.Name == "" {
			return nil, err
		}
		resource := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[binding.RoleRef.Kind]
		return []Write{{write.Identity, "bind", rbacv1.GroupName, resource, "", binding.RoleRef.Name}}, nil
	case certificatesv1.GroupName + "/certificatesigningrequests/approval":
		var request certificatesv1.CertificateSigningRequest
		if err := json.Unmarshal(event.RequestObject.Raw, &request); err != nil {
			return nil, err
		}
		return []Write{{write.Identity, "approve", certificatesv1.GroupName, "signers", "", request.Spec.SignerName}}, nil
	}
	return nil, nil
}

func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

func isProcess(userAgent string) bool {
	for _, prefix := range userAgents {
		if strings.HasPrefix(userAgent, prefix) {
			return true
		}
	}
	return false
}

// identityOf returns the identity that a user name belongs to. A consumer has a ServiceAccount in its tenant namespace,
// or a client certificate. A virtual kubelet has a ServiceAccount in the tenant namespace of its provider.
func identityOf(user string) Identity {
	account, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return Consumer
	}
	namespace, name, _ := strings.Cut(account, ":")
	switch {
	case name == wire.ConsumerServiceAccount:
		return Consumer
	case strings.HasPrefix(namespace, wire.TenantNamespacePrefix):
		return Kubelet
	}
	return Manager
}
