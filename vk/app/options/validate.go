// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

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
	"github.com/refract-project/refract/vk/node"
	"github.com/refract-project/refract/vk/reflection"
)

// Validate sets the default of VirtualNode, and returns the errors of all flags at once. Each error names the flag, and
// says how to correct its value.
func (o *Options) Validate() error {
	if o.VirtualNode == "" {
		o.VirtualNode = o.NodeName
	}
	return errors.Join(o.validateClusters(), o.validateNode(), o.validateReflection(), o.validateKubeletAPI(), o.validateOperation(), o.Logs.Validate())
}

func (o *Options) validateClusters() error {
	var faults []error
	for _, cluster := range []struct{ flag, id string }{{"home-cluster-id", o.HomeClusterID}, {"foreign-cluster-id", o.ForeignClusterID}} {
		switch err := corev1beta1.ClusterID(cluster.id).Validate(); {
		case cluster.id == "":
			faults = append(faults, fmt.Errorf("--%s is missing: set it to the id of that cluster", cluster.flag))
		case err != nil:
			faults = append(faults, fmt.Errorf("--%s: %w", cluster.flag, err))
		}
	}
	if o.HomeClusterID != "" && o.HomeClusterID == o.ForeignClusterID {
		faults = append(faults, fmt.Errorf("--home-cluster-id and --foreign-cluster-id are both %s: each cluster needs a unique id", o.HomeClusterID))
	}
	return errors.Join(append(faults, o.validateProviderAccess(), o.validateClients(),
		o.validateHomeAccess(), validateName("tenant-namespace", o.TenantNamespace, validation.IsDNS1123Label))...)
}

func (o *Options) validateProviderAccess() error {
	switch {
	case o.ForeignSecret == "" && o.ForeignKubeconfig == "":
		return errors.New("no kubeconfig for the provider: set --foreign-kubeconfig-secret-name or --foreign-kubeconfig")
	case o.ForeignSecret != "" && o.ForeignKubeconfig != "":
		return errors.New("--foreign-kubeconfig-secret-name and --foreign-kubeconfig are mutually exclusive: set one")
	case o.ForeignSecret != "":
		return validateName("foreign-kubeconfig-secret-name", o.ForeignSecret, validation.IsDNS1123Subdomain)
	}
	_, err := o.ConnectByFile()
	return err
}

// HomeKubeconfigFile returns the path of this cluster's kubeconfig, and the name of the flag or variable that sets the
// path. If path is empty, the process uses the in-cluster configuration.
func (o *Options) HomeKubeconfigFile() (source, path string) {
	if o.HomeKubeconfig != "" {
		return "--home-kubeconfig", o.HomeKubeconfig
	}
	return "$KUBECONFIG", o.EnvKubeconfig
}

func (o *Options) validateHomeAccess() error {
	source, path := o.HomeKubeconfigFile()
	if path == "" {
		return nil
	}
	if _, err := connection.ParseFile(path); err != nil {
		return fmt.Errorf("%s=%s cannot be used: %w", source, path, err)
	}
	return nil
}

// minHeartbeatInterval and maxHeartbeatInterval bound --heartbeat-interval. A shorter interval floods the provider
// with writes. With a longer interval, the provider sends traffic to an unavailable consumer for minutes.
const (
	minHeartbeatInterval = time.Second
	maxHeartbeatInterval = 30 * time.Second
)

func (o *Options) validateClients() error {
	var faults []error
	if o.ClientTimeout < 0 {
		faults = append(faults, fmt.Errorf("--client-timeout=%s: use a positive duration, or 0 for none", o.ClientTimeout))
	}
	if least := int64(16 << 20); o.ForeignAnswer.Value() < least {
		faults = append(faults, fmt.Errorf("--foreign-answer-limit=%s: use 16Mi or more, a single object can have several MiB", o.ForeignAnswer.String()))
	}
	if o.ClientQPS == 0 {
		faults = append(faults, errors.New("--client-qps=0: use a positive number, or a negative one for no limit"))
	}
	if o.ClientQPS > 0 && o.ClientBurst < 1 {
		faults = append(faults, fmt.Errorf("--client-max-burst=%d: use 1 or more", o.ClientBurst))
	}
	return errors.Join(faults...)
}

func (o *Options) validateNode() error {
	faults := []error{
		validateName("nodename", o.NodeName, labelledName),
		validateName("virtualnode-name", o.VirtualNode, validation.IsDNS1123Subdomain),
	}
	if _, err := netip.ParseAddr(o.NodeIP); err != nil {
		faults = append(faults, fmt.Errorf("--node-ip=%q is not an IP address: set it to the address of this pod (in a pod template: $(POD_IP))", o.NodeIP))
	}
	if o.LeaseDuration < node.MinLeasePeriod {
		faults = append(faults, fmt.Errorf("--node-lease-duration=%s: use 4s or more", o.LeaseDuration))
	}
	if o.HeartbeatInterval < 0 || o.HeartbeatInterval > 0 && o.HeartbeatInterval < minHeartbeatInterval || o.HeartbeatInterval > maxHeartbeatInterval {
		faults = append(faults, fmt.Errorf("--heartbeat-interval=%s: use a duration from 1s to 30s, or 0 for no heartbeat", o.HeartbeatInterval))
	}
	if o.PingInterval < 0 {
		faults = append(faults, fmt.Errorf("--node-ping-interval=%s: use a positive duration, or 0 for no pings", o.PingInterval))
	}
	if o.PingTimeout <= 0 {
		faults = append(faults, fmt.Errorf("--node-ping-timeout=%s: use a positive duration", o.PingTimeout))
	}
	for _, key := range slices.Sorted(maps.Keys(o.NodeExtraLabels)) {
		value := o.NodeExtraLabels[key]
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			faults = append(faults, fmt.Errorf("--node-extra-labels: %s=%s is not a valid label: %s", key, value, strings.Join(problems, "; ")))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.NodeExtraAnnotations)) {
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			faults = append(faults, fmt.Errorf("--node-extra-annotations: %s is not a valid annotation name: %s", key, strings.Join(problems, "; ")))
		}
	}
	return errors.Join(faults...)
}

// labelledName validates the name of an object. The name must also be a valid label value.
func labelledName(name string) []string {
	return append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
}

func (o *Options) validateReflection() error {
	var faults []error
	for _, kind := range reflection.DefaultKinds() {
		if workers := o.Workers[kind.Name]; workers != nil && *workers < 0 {
			faults = append(faults, fmt.Errorf("--%s-reflection-workers=%d: use 1 or more, or 0 to reflect none", kind.Flag(), *workers))
		}
		if policy := o.Policies[kind.Name]; policy != nil && *policy != string(reflection.DenyList) && *policy != string(reflection.AllowList) {
			faults = append(faults, fmt.Errorf("--%s-reflection-type=%s: use DenyList or AllowList", kind.Flag(), *policy))
		}
	}
	if !slices.Contains(supportModes, o.SupportMode) {
		faults = append(faults, fmt.Errorf("--apiserver-support-mode=%s: use %s", o.SupportMode, strings.Join(supportModes, ", ")))
	}
	if host := o.HomeAPIServerHost; host != "" && net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		faults = append(faults, fmt.Errorf("--home-api-server-host=%q is neither an IP address nor a host name", host))
	}
	if port := o.HomeAPIServerPort; port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			faults = append(faults, fmt.Errorf("--home-api-server-port=%q: use a number from 1 to 65535", port))
		}
	}
	if o.ReferenceTimeout < 0 {
		faults = append(faults, fmt.Errorf("--reference-timeout=%s: use a positive duration, or 0 to start pods at once", o.ReferenceTimeout))
	}
	if o.ResyncPeriod < 0 {
		faults = append(faults, fmt.Errorf("--resync-period=%s: use a positive duration, or 0 for none", o.ResyncPeriod))
	}
	faults = append(faults, validateName("virtual-storage-class-name", o.VirtualStorageClass, validation.IsDNS1123Subdomain))
	for flag, class := range map[string]string{"remote-real-storage-class-name": o.RemoteStorageClass, "remote-real-ingress-class-name": o.IngressClass} {
		if class != "" {
			faults = append(faults, validateName(flag, class, validation.IsDNS1123Subdomain))
		}
	}
	if o.LoadBalancerClass != "" {
		faults = append(faults, validateName("remote-real-load-balancer-class-name", o.LoadBalancerClass, validation.IsQualifiedName))
	}
	_, err := o.RemoteIPs()
	_, err2 := ipmap.ParseRanges("--local-podcidr", o.LocalPodCIDRs)
	_, err3 := ipmap.ParseRanges("--own-cidrs", o.OwnCIDRs)
	_, err4 := ipmap.ParseRanges("--foreign-cidrs", o.ForeignCIDRs)
	return errors.Join(append(faults, err, err2, err3, err4)...)
}

// RemoteIPs returns the table that translates the provider's addresses, according to the flags with pod ranges and
// remapped ranges.
func (o *Options) RemoteIPs() (*ipmap.Table, error) {
	return ipmap.New(ipmap.Config{PodCIDRs: o.PodCIDRs, PodCIDRRemaps: o.PodCIDRRemaps,
		ExternalCIDRs: o.ExternalCIDRs, ExternalCIDRRemaps: o.ExternalCIDRRemaps})
}

func (o *Options) validateKubeletAPI() error {
	var faults []error
	if _, signed := kubeletapi.SignerOf(o.CertificateType); !signed && o.CertificateType != kubeletapi.SelfSigned {
		faults = append(faults, fmt.Errorf("--certificate-type=%s: use kubelet, aws or self-signed", o.CertificateType))
	}
	if (o.TlsCertFile == "") != (o.TlsKeyFile == "") {
		faults = append(faults, errors.New("--tls-cert-file and --tls-private-key-file must be set together"))
	}
	if _, err := netip.ParseAddr(o.ListenAddress); err != nil {
		faults = append(faults, fmt.Errorf("--listen-address=%q is not an IP address", o.ListenAddress))
	}
	return errors.Join(append(faults,
		validateReadable("tls-cert-file", o.TlsCertFile), validateReadable("tls-private-key-file", o.TlsKeyFile), validateReadable("client-ca-file", o.ClientCA))...)
}

func (o *Options) validateOperation() error {
	var faults []error
	if o.ElectDuration <= o.ElectRenew {
		faults = append(faults, fmt.Errorf("--vk-lease-duration=%s must be longer than --vk-lease-renew-interval=%s", o.ElectDuration, o.ElectRenew))
	}
	if float64(o.ElectRenew) <= 1.2*float64(o.ElectRetry) || o.ElectRetry <= 0 {
		faults = append(faults, fmt.Errorf("--vk-lease-renew-interval=%s must be longer than 1.2 times --vk-lease-retry-period=%s, which must be positive", o.ElectRenew, o.ElectRetry))
	}
	if o.PluginDir != "" {
		if info, err := os.Stat(o.PluginDir); err != nil || !info.IsDir() {
			faults = append(faults, fmt.Errorf("--plugin-dir=%s is not a directory: create it, or set the directory of the plugins", o.PluginDir))
		}
	}
	return errors.Join(faults...)
}

// validateReadable checks that the file at the path in a flag can be opened. An empty path is valid.
func validateReadable(flag, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return file.Close()
}

func validateName(flag, name string, check func(string) []string) error {
	if problems := check(name); len(problems) > 0 {
		return fmt.Errorf("--%s=%q is not a valid name: %s", flag, name, strings.Join(problems, "; "))
	}
	return nil
}
