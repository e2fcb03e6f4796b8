// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/refract-project/refract/test/support/testenv/machine"
	"github.com/refract-project/refract/test/support/testenv/registry"
)

// Options configures one cluster. With the zero value, it is a control plane without nodes, in a temporary folder.
type Options struct {
	// Name appears in kubeconfigs, node names and errors. It must be a DNS label. The defaults are "cluster-1",
	// "cluster-2", and so on.
	Name string
	// KwokNodes is the number of simulated nodes at the start. Their pods become Ready at once, but run no
	// containers.
	KwokNodes int
	// Nodes is the number of real nodes at the start. Each is a machine of Network with a kubelet, containerd and
	// kube-proxy. The cluster also has CoreDNS. The control plane runs on the first machine. NodesHere checks whether
	// this computer meets the requirements.
	Nodes   int
	Network *machine.Network
	// Registry is the registry from which real nodes pull all images, regardless of the registry in the names of the
	// images.
	Registry *registry.Registry
	// AuditLog enables the audit log (see Cluster.AuditLogPath).
	AuditLog bool
	// AuditWritesOf are groups of users. The audit log has the writes of their members, even without AuditLog, and nothing
	// else then. The entries of RoleBindings and of approvals of certificates have bodies, because they name what RBAC
	// checks with the verbs bind and approve.
	AuditWritesOf []string
	// NoScheduler means that there is no scheduler. The test must bind all pods itself.
	NoScheduler bool
	// PodCIDR is the range of addresses for pods, and ServiceCIDR the range for cluster IPs. By default, up to 12
	// clusters of one StartAll get disjoint ranges: 10.244.0.0/16 and 10.96.0.0/16, 10.245.0.0/16 and 10.97.0.0/16,
	// and so on.
	PodCIDR, ServiceCIDR string
	// CRDPaths are files and folders with CustomResourceDefinitions. Start installs them and waits until they are
	// established.
	CRDPaths []string
	// Dir is the folder for the cluster's state. It must be empty or not exist. Stop removes it. The default is a
	// temporary folder.
	Dir string
	// ExtraAPIServerArgs and ExtraControllerManagerArgs are appended to the command lines. They override earlier
	// flags with the same name.
	ExtraAPIServerArgs, ExtraControllerManagerArgs []string
	// Log is called with the progress of Start. It may be nil.
	Log func(format string, args ...any)
}

// withDefaults returns the options with defaults for empty fields. index is the number of the cluster among the
// clusters of one StartAll.
func (o Options) withDefaults(index int) (Options, error) {
	if o.Name == "" {
		o.Name = fmt.Sprintf("cluster-%d", index+1)
	}
	if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 {
		return o, fmt.Errorf("the cluster name %q is not usable: %s", o.Name, strings.Join(problems, "; "))
	}
	if o.PodCIDR == "" {
		o.PodCIDR = fmt.Sprintf("10.%d.0.0/16", 244+index%12)
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = fmt.Sprintf("10.%d.0.0/16", 96+index%128)
	}
	for _, cidr := range []string{o.PodCIDR, o.ServiceCIDR} {
		if _, _, err := net.ParseCIDR(cidr); err != nil {
			return o, fmt.Errorf("cluster %s, %w", o.Name, err)
		}
	}
	if o.Nodes > 0 && (o.Network == nil || o.Registry == nil) {
		return o, fmt.Errorf("cluster %s has real nodes: give it a Network and a Registry", o.Name)
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return o, nil
}

// makeDir creates the state folder. Only the current user can read it, because it contains the keys of the cluster.
func (o Options) makeDir() (string, error) {
	if o.Dir == "" {
		return os.MkdirTemp("", "refract-"+o.Name+"-")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the state folder %s of cluster %s is not empty; it would be removed with the cluster, name another", dir, o.Name)
	}
	return dir, nil
}

// firstAddress returns the first address of a Service range. Kubernetes assigns it to the Service kubernetes.
func firstAddress(cidr string) net.IP {
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil
	}
	ip := append(net.IP(nil), network.IP...)
	ip[len(ip)-1]++
	return ip
}
