// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/vk/ipmap"
	"github.com/refract-project/refract/vk/kubeletapi"
	"github.com/refract-project/refract/vk/reflection"
)

// validate returns everything that is wrong at once; each error names its flag
// and the remedy.
func (o *options) validate() error {
	if o.virtualNode == "" {
		o.virtualNode = o.nodeName
	}
	return errors.Join(o.validateClusters(), o.validateNode(), o.validateReflection(), o.validateKubeletAPI(), o.validateOperation())
}

func (o *options) validateClusters() error {
	var faults []error
	for flag, id := range map[string]string{"home-cluster-id": o.homeClusterID, "foreign-cluster-id": o.foreignClusterID} {
		switch err := corev1beta1.ClusterID(id).Validate(); {
		case id == "":
			faults = append(faults, fmt.Errorf("--%s is missing: give the id of that cluster", flag))
		case err != nil:
			faults = append(faults, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	switch {
	case o.foreignSecret == "" && o.foreignKubeconfig == "":
		faults = append(faults, errors.New("no way to the provider: give --foreign-kubeconfig-secret-name or --foreign-kubeconfig"))
	case o.foreignSecret != "" && o.foreignKubeconfig != "":
		faults = append(faults, errors.New("--foreign-kubeconfig-secret-name and --foreign-kubeconfig exclude each other: give one"))
	}
	return errors.Join(append(faults,
		readable("home-kubeconfig", o.homeKubeconfig), readable("foreign-kubeconfig", o.foreignKubeconfig),
		named("tenant-namespace", o.tenantNamespace, validation.IsDNS1123Label))...)
}

func (o *options) validateNode() error {
	faults := []error{
		named("nodename", o.nodeName, validation.IsDNS1123Subdomain),
		named("virtualnode-name", o.virtualNode, validation.IsDNS1123Subdomain),
	}
	if _, err := netip.ParseAddr(o.nodeIP); err != nil {
		faults = append(faults, fmt.Errorf("--node-ip=%q is no IP address: give the address of this pod (in a pod template: $(POD_IP))", o.nodeIP))
	}
	if o.leaseDuration < 4*time.Second {
		faults = append(faults, fmt.Errorf("--node-lease-duration=%s: use 4s or more", o.leaseDuration))
	}
	if o.pingInterval < 0 {
		faults = append(faults, fmt.Errorf("--node-ping-interval=%s: use a positive duration, or 0 for no pings", o.pingInterval))
	}
	if o.pingTimeout <= 0 {
		faults = append(faults, fmt.Errorf("--node-ping-timeout=%s: use a positive duration", o.pingTimeout))
	}
	for key, value := range o.nodeExtraLabels {
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			faults = append(faults, fmt.Errorf("--node-extra-labels: %s=%s is no label: %s", key, value, strings.Join(problems, "; ")))
		}
	}
	return errors.Join(faults...)
}

func (o *options) validateReflection() error {
	var faults []error
	for kind, workers := range o.workers {
		if *workers < 0 {
			faults = append(faults, fmt.Errorf("--%s-reflection-workers=%d: use 1 or more, or 0 to reflect none", flagName(kind), *workers))
		}
	}
	for kind, policy := range o.policies {
		if *policy != string(reflection.DenyList) && *policy != string(reflection.AllowList) {
			faults = append(faults, fmt.Errorf("--%s-reflection-type=%s: use DenyList or AllowList", flagName(kind), *policy))
		}
	}
	if o.resyncPeriod < 0 {
		faults = append(faults, fmt.Errorf("--resync-period=%s: use a positive duration, or 0 for none", o.resyncPeriod))
	}
	_, err := o.remoteIPs()
	_, err2 := ipmap.ParseRanges("--local-podcidr", o.localPodCIDRs)
	return errors.Join(append(faults, err, err2)...)
}

func (o *options) remoteIPs() (*ipmap.Table, error) {
	return ipmap.New(ipmap.Config{PodCIDRs: o.podCIDRs, PodCIDRRemaps: o.podCIDRRemaps,
		ExternalCIDRs: o.externalCIDRs, ExternalCIDRRemaps: o.externalCIDRRemaps})
}

func (o *options) validateKubeletAPI() error {
	var faults []error
	if _, signed := kubeletapi.SignerOf(o.certificateType); !signed && o.certificateType != kubeletapi.SelfSigned {
		faults = append(faults, fmt.Errorf("--certificate-type=%s: use kubelet, aws or self-signed", o.certificateType))
	}
	if (o.tlsCertFile == "") != (o.tlsKeyFile == "") {
		faults = append(faults, errors.New("--tls-cert-file and --tls-private-key-file belong together: give both"))
	}
	if _, err := netip.ParseAddr(o.listenAddress); err != nil {
		faults = append(faults, fmt.Errorf("--listen-address=%q is no IP address", o.listenAddress))
	}
	return errors.Join(append(faults,
		readable("tls-cert-file", o.tlsCertFile), readable("tls-private-key-file", o.tlsKeyFile), readable("client-ca-file", o.clientCA))...)
}

func (o *options) validateOperation() error {
	var faults []error
	if o.electDuration <= o.electRenew {
		faults = append(faults, fmt.Errorf("--vk-lease-duration=%s must be longer than --vk-lease-renew-interval=%s", o.electDuration, o.electRenew))
	}
	if float64(o.electRenew) <= 1.2*float64(o.electRetry) || o.electRetry <= 0 {
		faults = append(faults, fmt.Errorf("--vk-lease-renew-interval=%s must be longer than 1.2 times --vk-lease-retry-period=%s, which must be positive", o.electRenew, o.electRetry))
	}
	if o.pluginDir != "" {
		if info, err := os.Stat(o.pluginDir); err != nil || !info.IsDir() {
			faults = append(faults, fmt.Errorf("--plugin-dir=%s is not a folder: create it, or give the folder of the plugins", o.pluginDir))
		}
	}
	return errors.Join(faults...)
}

// readable checks that a file that a flag names can be opened; "" is fine.
func readable(flag, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return file.Close()
}

func named(flag, name string, check func(string) []string) error {
	if problems := check(name); len(problems) > 0 {
		return fmt.Errorf("--%s=%q cannot be a name: %s", flag, name, strings.Join(problems, "; "))
	}
	return nil
}

// flagName is how flags call a kind.
func flagName(kind string) string {
	kind, _, _ = strings.Cut(kind, ".")
	return strings.ToLower(kind)
}
