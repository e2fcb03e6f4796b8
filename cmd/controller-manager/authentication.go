// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/log"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/authentication"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/rbac"
)

// authenticationOptions contains the flags for admitting consumers that join with Liqo's protocol or with refractctl
// peer. Flags that Liqo also has have the same names.
type authenticationOptions struct {
	enabled, offers, tenantAccess       bool
	address, authority                  string
	trusted                             bool
	rolePrefix                          string
	resources, limit                    map[string]string
	defaultClass                        bool
	storage                             bool
	storageClass                        string
	ingressClasses, loadBalancerClasses []string
	labels                              map[string]string
}

func (o *authenticationOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.enabled, "authentication-enabled", false, "admit consumers that join as Liqo does, with Tenants and ResourceSlices; this process then approves client certificates")
	flags.BoolVar(&o.offers, "resource-offers", false, "publish the resources, classes and labels that this cluster offers to consumers joined with refractctl peer")
	flags.BoolVar(&o.tenantAccess, "tenant-access", false, "create a Tenant for each consumer joined with refractctl peer, and enforce its spec.tenantCondition")
	flags.StringVar(&o.address, "api-server-address-override", "", "URL of this API server, as consumers that join as Liqo does reach it; by default the address of the Service kubernetes")
	flags.StringVar(&o.authority, "ca-override", "", "CA certificates, base64-encoded PEM, with which consumers verify this API server; by default those of this process")
	flags.BoolVar(&o.trusted, "trusted-ca", false, "do not hand out CA certificates, because the certificate of this API server is publicly trusted")
	flags.StringVar(&o.rolePrefix, "role-prefix", rbac.DefaultPrefix, "prefix of the names of this installation's ClusterRoles")
	flags.StringToStringVar(&o.resources, "default-node-resources", nil, "resources granted to a ResourceSlice that does not request them, as cpu=4,memory=8Gi")
	flags.StringToStringVar(&o.limit, "tenant-max-resources", nil, "maximum resources that each consumer is granted by all of its ResourceSlices together, as cpu=16,memory=64Gi; resources that are not listed are unlimited")
	flags.BoolVar(&o.defaultClass, "default-resource-slice-class-enabled", true, "decide on the resources of ResourceSlices of the class default, and of those without a class; other classes are left to other controllers")
	flags.BoolVar(&o.storage, "enable-storage", false, "offer the StorageClasses of this cluster in ResourceSlices")
	flags.StringVar(&o.storageClass, "real-storage-class-name", "", "default StorageClass among those; by default that of this cluster")
	flags.StringSliceVar(&o.ingressClasses, "ingress-classes", nil, "ingress classes that ResourceSlices offer, as nginx;default,traefik")
	flags.StringSliceVar(&o.loadBalancerClasses, "load-balancer-classes", nil, "load balancer classes that ResourceSlices offer, as public;default,internal")
	flags.StringToStringVar(&o.labels, "cluster-labels", nil, "labels that the virtual nodes of ResourceSlices get, as topology.kubernetes.io/zone=eu-1")
}

// warnOfIdleFlags logs a warning about flags that were set but have no effect.
func (o *authenticationOptions) warnOfIdleFlags(flags *pflag.FlagSet) {
	if o.enabled {
		return
	}
	without, idle := "--authentication-enabled", []string{"api-server-address-override", "ca-override", "trusted-ca", "default-node-resources"}
	if !o.offers {
		without, idle = "--authentication-enabled and --resource-offers", append(idle, "tenant-max-resources", "enable-storage", "real-storage-class-name", "ingress-classes", "load-balancer-classes", "cluster-labels")
	}
	for _, name := range idle {
		if flag := flags.Lookup(name); flag.Changed && flag.Value.String() != flag.DefValue {
			log.Log.Info("A flag has no effect without others", "flag", "--"+name, "value", flag.Value.String(), "others", without)
		}
	}
}

// authenticationConfig parses the flags. It returns the errors of all flags together.
func (o *authenticationOptions) authenticationConfig() (authentication.Options, error) {
	resources, resourcesErr := parseQuantities("--default-node-resources", o.resources)
	limit, limitErr := parseQuantities("--tenant-max-resources", o.limit)
	ingressClasses, ingressErr := parseClasses("--ingress-classes", o.ingressClasses, func(name string, isDefault bool) offloading.IngressType {
		return offloading.IngressType{IngressClassName: name, Default: isDefault}
	})
	loadBalancerClasses, loadBalancerErr := parseClasses("--load-balancer-classes", o.loadBalancerClasses, func(name string, isDefault bool) offloading.LoadBalancerType {
		return offloading.LoadBalancerType{LoadBalancerClassName: name, Default: isDefault}
	})
	server, serverErr := o.apiServer()
	return authentication.Options{
		Enabled: o.enabled, APIServer: server, RolePrefix: o.rolePrefix,
		Offer: controllers.Offer{
			Resources: resources, Limit: limit, OtherClasses: !o.defaultClass, Storage: o.storage, DefaultStorageClass: o.storageClass,
			IngressClasses: ingressClasses, LoadBalancerClasses: loadBalancerClasses, Labels: o.labels,
		},
	}, errors.Join(resourcesErr, limitErr, ingressErr, loadBalancerErr, serverErr)
}

func (o *authenticationOptions) apiServer() (server authentication.APIServer, err error) {
	server = authentication.APIServer{URL: o.address, TrustedCA: o.trusted}
	if o.address != "" && !strings.Contains(o.address, "://") {
		server.URL = "https://" + o.address
	}
	if server.URL != "" {
		switch parsed, err := connection.ParseServer(server.URL); {
		case err != nil:
			return server, fmt.Errorf("--api-server-address-override: use a host, with a port or without, or an https URL: the address %w", err)
		case connection.RefersToNoMachine(parsed):
			return server, fmt.Errorf("--api-server-address-override=%s: no consumer can reach this address, use one of this cluster", o.address)
		}
	}
	if o.authority == "" {
		return server, nil
	}
	if server.CA, err = base64.StdEncoding.DecodeString(o.authority); err == nil {
		_, err = cert.ParseCertsPEM(server.CA)
	}
	if err != nil {
		return server, fmt.Errorf("--ca-override: use certificates in PEM, in base64: %w", err)
	}
	return server, nil
}

func parseQuantities(flag string, texts map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, text := range texts {
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			return nil, fmt.Errorf("%s: %s=%s is not a quantity, use one such as 4, 500m or 8Gi", flag, name, text)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}

// parseClasses parses names of classes. One of them may have the suffix ";default".
func parseClasses[T any](flag string, texts []string, class func(name string, isDefault bool) T) (all []T, err error) {
	defaults := 0
	for _, text := range texts {
		name, mark, marked := strings.Cut(text, ";")
		if name == "" || marked && mark != "default" {
			return nil, fmt.Errorf("%s: %q is not a class, use NAME or NAME;default", flag, text)
		}
		if marked {
			defaults++
		}
		all = append(all, class(name, marked))
	}
	if defaults > 1 {
		return nil, fmt.Errorf("%s: %d classes are the default, only one can be", flag, defaults)
	}
	return all, nil
}
