// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/internal/cmdutil"
)

// parse parses a command line, and returns the options and the flags.
func parse(t *testing.T, env map[string]string, args ...string) (*Options, *pflag.FlagSet, error) {
	t.Helper()
	o := New(func(name string) string { return env[name] })
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	groups := o.FlagGroups()
	for _, group := range groups.FlagSets {
		flags.AddFlagSet(group)
	}
	return o, flags, flags.Parse(args)
}

// required contains the required flags, with valid values.
var required = []string{"--home-cluster-id=rome", "--foreign-cluster-id=milan", "--nodename=milan", "--node-ip=10.0.0.7", "--foreign-kubeconfig-secret-name=kubeconfig"}

// liqoArguments are the arguments in Liqo's templates for virtual kubelets.
const liqoArguments = `
- --foreign-cluster-id=milan
- --foreign-kubeconfig-secret-name=kubeconfig-resourceslice-milan
- --nodename=milan
- --node-ip=$(POD_IP)
- --tenant-namespace=liqo-tenant-milan
- --liqo-namespace=liqo
- --home-cluster-id=rome
- --local-podcidr=10.244.0.0/16
- --enable-storage
- --virtual-storage-class-name=liqo
- --remote-real-storage-class-name=standard
- --enable-ingress
- --remote-real-ingress-class-name=nginx
- --enable-load-balancer
- --remote-real-load-balancer-class-name=metal
- --pod-reflection-workers=10
- --service-reflection-workers=3
- --endpointslice-reflection-workers=10
- --ingress-reflection-workers=3
- --configmap-reflection-workers=3
- --secret-reflection-workers=3
- --serviceaccount-reflection-workers=3
- --persistentvolumeclaim-reflection-workers=3
- --event-reflection-workers=3
- --service-reflection-type=DenyList
- --ingress-reflection-type=DenyList
- --configmap-reflection-type=DenyList
- --secret-reflection-type=DenyList
- --event-reflection-type=DenyList
- --node-extra-labels=zone=a,tier=gold
- --node-extra-annotations=note=1
- --certificate-type=kubelet
- --enable-apiserver-support=true
- --metrics-enabled
- --metrics-address=:5872
- --create-node=true
- --node-check-network=false
- --node-lease-duration=40s
- --node-ping-interval=10s
- --node-ping-timeout=1s
- --vk-lease-enabled=true
- --client-qps=100
- --client-max-burst=100
- --resync-period=10h
- --remote-pod-cidr=10.244.0.0/16
- --remote-pod-cidr-remap=10.71.0.0/16
- --klog.v=4
- --klog.logtostderr=true
`

func TestArgumentsOfLiqoTemplatesAreAccepted(t *testing.T) {
	var args []string
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(liqoArguments, "$(POD_IP)", "10.0.0.7")), &args))
	o, flags, err := parse(t, map[string]string{"VIRTUALNODE_NAME": "milan"}, args...)
	require.NoError(t, err)
	require.NoError(t, o.Validate())
	if o.Logs.Verbosity != 4 || o.CheckNetwork || o.MetricsAddress != ":5872" || !cmp.Equal(o.NodeExtraLabels, map[string]string{"zone": "a", "tier": "gold"}) {
		t.Errorf("options: %+v", o)
	}
	if !o.Storage || o.VirtualStorageClass != "liqo" || o.RemoteStorageClass != "standard" {
		t.Errorf("storage %t, class %s, on the provider %s", o.Storage, o.VirtualStorageClass, o.RemoteStorageClass)
	}
	if known := o.Classes(); known.Ingress != "nginx" || known.LoadBalancer != "metal" {
		t.Errorf("classes = %+v, want those of the flags", known)
	}
	var log bytes.Buffer
	o.Logs = cmdutil.Logs{Format: "json"}
	require.NoError(t, o.Logs.Install(&log))
	o.WarnInert(flags)
	if strings.Contains(log.String(), "service-reflection-workers") {
		t.Error("a flag that has an effect is said to have none")
	}
}

// klogFlags are flags of Liqo's virtual kubelet, each with a value that differs from klog's default.
var klogFlags = []string{"--klog.add_dir_header", "--klog.alsologtostderr=true", "--klog.log_backtrace_at=main.go:1", "--klog.log_dir=/tmp", "--klog.log_file=/tmp/x",
	"--klog.log_file_max_size=5", "--klog.logtostderr=false", "--klog.one_output", "--klog.skip_headers", "--klog.skip_log_headers=true", "--klog.stderrthreshold=INFO", "--klog.vmodule=main=4"}

func TestEveryFlagOfKlogIsAccepted(t *testing.T) {
	inVain := func(args ...string) (names []string) {
		t.Helper()
		o, flags, err := parse(t, nil, append(args, required...)...)
		require.NoError(t, err)
		require.NoError(t, o.Validate())
		for _, name := range o.inert.InVain(flags) {
			names = append(names, "--"+name)
		}
		return names
	}
	all := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(all)
	var byDefault []string
	all.VisitAll(func(f *flag.Flag) { byDefault = append(byDefault, "--klog."+f.Name+"="+f.DefValue) })
	if names := inVain(byDefault...); len(names) > 0 {
		t.Errorf("%q ask for nothing that is not so anyway, and are warned of", names)
	}
	var want []string
	for _, given := range klogFlags {
		name, _, _ := strings.Cut(given, "=")
		want = append(want, name)
	}
	if got := inVain(append(slices.Clone(klogFlags), "--klog.v=4")...); !slices.Equal(got, want) {
		t.Errorf("warned of %q, want %q: all but --klog.v, which means --v", got, want)
	}
}

func TestNothingIsWarnedAboutWithoutCause(t *testing.T) {
	o, flags, err := parse(t, nil, append([]string{"--enable-storage=false", "--enable-ingress=false", "--secret-reflection-workers=0"}, required...)...)
	require.NoError(t, err)
	if given := o.inert.InVain(flags); len(given) > 0 {
		t.Errorf("warned of %q", given)
	}
}

func TestEnvironmentOfThePod(t *testing.T) {
	o, _, err := parse(t, map[string]string{"POD_IP": "10.0.0.9", "POD_NAME": "vk-milan-0", "POD_NAMESPACE": "liqo-tenant-milan", "KUBECONFIG": ""},
		"--home-cluster-id=rome", "--foreign-cluster-id=milan", "--nodename=milan", "--foreign-kubeconfig-secret-name=k")
	require.NoError(t, err)
	require.NoError(t, o.Validate())
	if o.NodeIP != "10.0.0.9" || o.PodName != "vk-milan-0" || o.TenantNamespace != "liqo-tenant-milan" || o.VirtualNode != "milan" {
		t.Errorf("node IP %s, pod %s, namespace %s, VirtualNode %s", o.NodeIP, o.PodName, o.TenantNamespace, o.VirtualNode)
	}
}

func TestWrongFlagsAreNamedWithTheRemedy(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"all well", nil, nil},
		{"several at once", []string{"--node-ip=here", "--foreign-cluster-id=A_B", "--foreign-kubeconfig-secret-name="}, []string{
			`--node-ip="here" is not an IP address`, "--foreign-cluster-id: ", "set --foreign-kubeconfig-secret-name or --foreign-kubeconfig"}},
		{"a missing id", []string{"--home-cluster-id="}, []string{"--home-cluster-id is missing"}},
		{"a file that is not there", []string{"--tls-cert-file=/none", "--home-kubeconfig=/nowhere"}, []string{
			"--tls-cert-file: open /none", "--tls-cert-file and --tls-private-key-file must be set together", "--home-kubeconfig=/nowhere cannot be used: reading the kubeconfig, open /nowhere"}},
		{"two ways to the provider", []string{"--foreign-kubeconfig=/none"}, []string{"mutually exclusive"}},
		{"a file of the provider that is not there", []string{"--foreign-kubeconfig-secret-name=", "--foreign-kubeconfig=/none"}, []string{"--foreign-kubeconfig=/none: reading the kubeconfig"}},
		{"a Secret that cannot be", []string{"--foreign-kubeconfig-secret-name=a b"}, []string{`--foreign-kubeconfig-secret-name="a b" is not a valid name`}},
		{"a cluster with itself", []string{"--foreign-cluster-id=rome"}, []string{"are both rome"}},
		{"a node name that is no label value", []string{"--nodename=" + strings.Repeat("a", 64)}, []string{"--nodename=", "63"}},
		{"clients", []string{"--client-timeout=-1s", "--client-qps=0"}, []string{"--client-timeout=-1s: use", "--client-qps=0: use"}},
		{"burst", []string{"--client-qps=5", "--client-max-burst=0"}, []string{"--client-max-burst=0: use 1 or more"}},
		{"API server", []string{"--home-api-server-host=bad host", "--home-api-server-port=99999"}, []string{"--home-api-server-host=", "--home-api-server-port=\"99999\": use a number"}},
		{"mode of the API server", []string{"--apiserver-support-mode=legacy"}, []string{"--apiserver-support-mode=legacy: use auto, TokenAPI, Legacy"}},
		{"logs", []string{"--log-format=xml"}, []string{`--log-format is "xml"`}},
		{"verbosity", []string{"-v=-1"}, []string{"--v=-1: use 0 or more"}},
		{"ping", []string{"--node-ping-timeout=0s", "--node-ping-interval=-1s"}, []string{"--node-ping-timeout=0s: use a positive", "--node-ping-interval=-1s: use"}},
		{"lease", []string{"--node-lease-duration=1s"}, []string{"--node-lease-duration=1s: use 4s or more"}},
		{"reflection", []string{"--pod-reflection-workers=-1", "--service-reflection-type=Some"}, []string{
			"--pod-reflection-workers=-1: use 1 or more", "--service-reflection-type=Some: use DenyList or AllowList"}},
		{"ranges", []string{"--remote-pod-cidr=10.0.0.0/8", "--local-podcidr=ten"}, []string{"--remote-pod-cidr lists 1 ranges but --remote-pod-cidr-remap lists 0", "--local-podcidr"}},
		{"certificate", []string{"--certificate-type=gold"}, []string{"--certificate-type=gold: use kubelet, aws or self-signed"}},
		{"election", []string{"--vk-lease-duration=5s"}, []string{"--vk-lease-duration=5s must be longer than --vk-lease-renew-interval=10s"}},
		{"label", []string{"--node-extra-labels=a b=c"}, []string{"--node-extra-labels: a b=c is not a valid label"}},
		{"annotation", []string{"--node-extra-annotations=a b=c"}, []string{"--node-extra-annotations: a b is not a valid annotation name"}},
		{"plugins", []string{"--plugin-dir=/none"}, []string{"--plugin-dir=/none is not a directory"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o, _, err := parse(t, nil, append(append([]string{}, required...), test.args...)...)
			require.NoError(t, err)
			err = o.Validate()
			if (err == nil) != (test.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestKubeconfigOfTheEnvironmentIsNamedAsSuch(t *testing.T) {
	o, _, err := parse(t, map[string]string{"KUBECONFIG": "options.go"}, required...)
	require.NoError(t, err)
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "$KUBECONFIG=options.go cannot be used: not a kubeconfig") || strings.Contains(err.Error(), "struct") {
		t.Errorf("got %v", err)
	}
}

func TestFaultsComeInTheSameOrderEveryTime(t *testing.T) {
	fault := func() string {
		o, _, err := parse(t, nil, "--node-extra-labels=a b=c,d e=f,g h=i", "--pod-reflection-workers=-1", "--service-reflection-workers=-1", "--endpointslice-reflection-workers=-1")
		require.NoError(t, err)
		return o.Validate().Error()
	}
	first := fault()
	for range 20 {
		if again := fault(); again != first {
			t.Fatalf("once it is\n%s\nand once\n%s", first, again)
		}
	}
}
