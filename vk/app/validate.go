// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/kubeletapi"
	"github.com/refract-project/refract/vk/reflection"
)

// validate returns everything that is wrong at once; each error names its flag
// and the remedy.
func (o *options) validate() error {
	if o.virtualNode == "" {
		o.virtualNode = o.nodeName
	}
	return errors.Join(o.validateClusters(), o.validateNode(), o.validateReflection(), o.validateKubeletAPI(), o.validateOperation(), o.logs.Validate())
}

func (o *options) validateClusters() error {
	var faults []error
	for _, cluster := range []struct{ flag, id string }{{"home-cluster-id", o.homeClusterID}, {"foreign-cluster-id", o.foreignClusterID}} {
		switch err := corev1beta1.ClusterID(cluster.id).Validate(); {
		case cluster.id == "":
			faults = append(faults, fmt.Errorf("--%s is missing: give the id of that cluster", cluster.flag))
		case err != nil:
			faults = append(faults, fmt.Errorf("--%s: %w", cluster.flag, err))
		}
	}
	if o.homeClusterID != "" && o.homeClusterID == o.foreignClusterID {
		faults = append(faults, fmt.Errorf("--home-cluster-id and --foreign-cluster-id are both %s: each cluster needs an id of its own", o.homeClusterID))
	}
	return errors.Join(append(faults, o.validateProviderAccess(), o.validateClients(),
		o.validateHomeAccess(), named("tenant-namespace", o.tenantNamespace, validation.IsDNS1123Label))...)
}

func (o *options) validateProviderAccess() error {
	switch {
	case o.foreignSecret == "" && o.foreignKubeconfig == "":
		return errors.New("no way to the provider: give --foreign-kubeconfig-secret-name or --foreign-kubeconfig")
	case o.foreignSecret != "" && o.foreignKubeconfig != "":
		return errors.New("--foreign-kubeconfig-secret-name and --foreign-kubeconfig exclude each other: give one")
	case o.foreignSecret != "":
		return named("foreign-kubeconfig-secret-name", o.foreignSecret, validation.IsDNS1123Subdomain)
	}
	_, err := o.connectByFile()
	return err
}

// homeKubeconfigFile returns the way to this cluster and where it was given; no
// path: the process runs in the cluster.
func (o *options) homeKubeconfigFile() (source, path string) {
	if o.homeKubeconfig != "" {
		return "--home-kubeconfig", o.homeKubeconfig
	}
	return "$KUBECONFIG", o.envKubeconfig
}

func (o *options) validateHomeAccess() error {
	source, path := o.homeKubeconfigFile()
	if path == "" {
		return nil
	}
	if _, err := connection.ParseFile(path); err != nil {
		return fmt.Errorf("%s=%s cannot be used: %w", source, path, err)
	}
	return nil
}

func (o *options) validateClients() error {
	var faults []error
	if o.clientTimeout < 0 {
		faults = append(faults, fmt.Errorf("--client-timeout=%s: use a positive duration, or 0 for none", o.clientTimeout))
	}
	if least := int64(16 << 20); o.foreignAnswer.Value() < least {
		faults = append(faults, fmt.Errorf("--foreign-answer-limit=%s: use 16Mi or more, single objects are of some MiB", o.foreignAnswer.String()))
	}
	if o.clientQPS == 0 {
		faults = append(faults, errors.New("--client-qps=0: use a positive number, or a negative one for no limit"))
	}
	if o.clientQPS > 0 && o.clientBurst < 1 {
		faults = append(faults, fmt.Errorf("--client-max-burst=%d: use 1 or more", o.clientBurst))
	}
	return errors.Join(faults...)
}

func (o *options) validateNode() error {
	faults := []error{
		named("nodename", o.nodeName, labelledName),
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
	for _, key := range slices.Sorted(maps.Keys(o.nodeExtraLabels)) {
		value := o.nodeExtraLabels[key]
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			faults = append(faults, fmt.Errorf("--node-extra-labels: %s=%s is no label: %s", key, value, strings.Join(problems, "; ")))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.nodeExtraAnnotations)) {
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			faults = append(faults, fmt.Errorf("--node-extra-annotations: %s is no name of an annotation: %s", key, strings.Join(problems, "; ")))
		}
	}
	return errors.Join(faults...)
}

// labelledName is a name of an object that is a label's value, too.
func labelledName(name string) []string {
	return append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
}

func (o *options) validateReflection() error {
	var faults []error
	for _, kind := range slices.Sorted(maps.Keys(o.workers)) {
		if workers := *o.workers[kind]; workers < 0 {
			faults = append(faults, fmt.Errorf("--%s-reflection-workers=%d: use 1 or more, or 0 to reflect none", flagName(kind), workers))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(o.policies)) {
		if policy := *o.policies[kind]; policy != string(reflection.DenyList) && policy != string(reflection.AllowList) {
			faults = append(faults, fmt.Errorf("--%s-reflection-type=%s: use DenyList or AllowList", flagName(kind), policy))
		}
	}
	if !slices.Contains(supportModes, o.supportMode) {
		faults = append(faults, fmt.Errorf("--apiserver-support-mode=%s: use %s", o.supportMode, strings.Join(supportModes, ", ")))
	}
	if host := o.homeAPIServerHost; host != "" && net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		faults = append(faults, fmt.Errorf("--home-api-server-host=%q is neither an IP address nor a host name", host))
	}
	if port := o.homeAPIServerPort; port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			faults = append(faults, fmt.Errorf("--home-api-server-port=%q: use a number from 1 to 65535", port))
		}
	}
	if o.resyncPeriod < 0 {
		faults = append(faults, fmt.Errorf("--resync-period=%s: use a positive duration, or 0 for none", o.resyncPeriod))
	}
	faults = append(faults, named("virtual-storage-class-name", o.virtualStorageClass, validation.IsDNS1123Subdomain))
	for flag, class := range map[string]string{"remote-real-storage-class-name": o.remoteStorageClass, "remote-real-ingress-class-name": o.ingressClass} {
		if class != "" {
			faults = append(faults, named(flag, class, validation.IsDNS1123Subdomain))
		}
	}
	if o.loadBalancerClass != "" {
		faults = append(faults, named("remote-real-load-balancer-class-name", o.loadBalancerClass, validation.IsQualifiedName))
	}
	_, err := o.remoteIPs()
	_, err2 := ipmap.ParseRanges("--local-podcidr", o.localPodCIDRs)
	_, err3 := ipmap.ParseRanges("--own-cidrs", o.ownCIDRs)
	_, err4 := ipmap.ParseRanges("--foreign-cidrs", o.foreignCIDRs)
	return errors.Join(append(faults, err, err2, err3, err4)...)
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
