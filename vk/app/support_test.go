// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/vk/app/options"
	"github.com/refract-project/refract/vk/reflection"
)

// TestSupportMode checks that the resources of this cluster's API server determine how offloaded pods get tokens,
// unless flags set the mode.
func TestSupportMode(t *testing.T) {
	for want, names := range map[string][]string{
		reflection.SupportTokenAPI: {"pods", "serviceaccounts", "serviceaccounts/token"},
		reflection.SupportLegacy:   {"pods", "pods/token", "serviceaccounts"},
	} {
		served := &metav1.APIResourceList{}
		for _, name := range names {
			served.APIResources = append(served.APIResources, metav1.APIResource{Name: name})
		}
		if got := supportBy(served); got != want {
			t.Errorf("an API server with %q gives the mode %s, want %s", names, got, want)
		}
	}
	for _, test := range []struct {
		want string
		args []string
	}{
		{reflection.SupportDisabled, nil},
		{reflection.SupportDisabled, []string{"--apiserver-support-mode=Legacy", "--enable-apiserver-support=false"}},
		{reflection.SupportLegacy, []string{"--apiserver-support-mode=Legacy", "--enable-apiserver-support"}},
		{reflection.SupportTokenAPI, []string{"--apiserver-support-mode=TokenAPI", "--enable-apiserver-support"}},
	} {
		o := options.New(func(string) string { return "" })
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, group := range o.FlagGroups().FlagSets {
			flags.AddFlagSet(group)
		}
		require.NoError(t, flags.Parse(test.args))
		if got, err := (&active{kubelet: &kubelet{Options: o}}).apiServerSupport(t.Context()); err != nil || got != test.want {
			t.Errorf("%q gives the mode %s, %v, want %s", test.args, got, err, test.want)
		}
	}
}

// TestDomainOfTheIssuer checks that the domain of the cluster is taken from the issuer of tokens only if the issuer
// is the Service of the API server.
func TestDomainOfTheIssuer(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://kubernetes.default.svc.cluster.local": "cluster.local", "https://kubernetes.default.svc.rome.example:6443": "rome.example", "https://kubernetes.default.svc": "",
		"https://oidc.example.com/id/1": "", "kubernetes/serviceaccount": "", "https://kubernetes.default.svc.a b": "", "https://kubernetes.default.svc.-": "", "": "", ":": "",
	} {
		if got := domainOf(issuer); got != want {
			t.Errorf("the domain of issuer %q is %q, want %q", issuer, got, want)
		}
	}
}

func TestNamesThatLeadElsewhere(t *testing.T) {
	for server, want := range map[[2]string]bool{
		{}: false, {"", "6443"}: false, {"192.0.2.1", ""}: false, {"192.0.2.1", "443"}: false, {"api.example.com", "6443"}: false,
		{"192.0.2.1", "6443"}: true, {"2001:db8::1", "6443"}: true,
	} {
		if got := namesLeadElsewhere(server[0], server[1]); got != want {
			t.Errorf("%q: %t, want %t", server, got, want)
		}
	}
}
