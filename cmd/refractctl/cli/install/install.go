// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	helmcli "helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/cli/values"
	"helm.sh/helm/v4/pkg/getter"
	"k8s.io/apimachinery/pkg/util/validation"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/release"
)

const (
	// DefaultRelease and DefaultNamespace match the documentation.
	DefaultRelease   = "refract"
	DefaultNamespace = "liqo"
	// installTimeout limits the wait for an installation, which includes pulling images.
	installTimeout = 5 * time.Minute
)

// helmRelease contains the flags of commands for a Helm release.
type helmRelease struct {
	access  *invocation.Access
	name    string
	dryRun  bool
	timeout time.Duration
}

func (r *helmRelease) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&r.name, "release", DefaultRelease, "name of the Helm release; its namespace is that of --namespace, or "+DefaultNamespace)
	flags.BoolVar(&r.dryRun, "dry-run", false, "check, and change nothing")
	flags.DurationVar(&r.timeout, "timeout", installTimeout, "how long to wait")
}

// newInstaller returns the Installer of the release, whose progress is written to out.
func (r *helmRelease) newInstaller(out io.Writer) (*release.Installer, error) {
	c, err := r.access.NewClient(invocation.RequestTimeout)
	if err != nil {
		return nil, err
	}
	namespace := r.access.NamespaceFlag()
	if namespace == "" {
		namespace = DefaultNamespace
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, invocation.UsageError(fmt.Errorf("--namespace: %q cannot be the name of a namespace: %s", namespace, strings.Join(problems, "; ")))
	}
	if err := chartutil.ValidateReleaseName(r.name); err != nil {
		return nil, invocation.UsageError(fmt.Errorf("--release: %q: %w", r.name, err))
	}
	return &release.Installer{Getter: r.access.Flags, Client: c, Name: r.name, Namespace: namespace, DryRun: r.dryRun, Progress: invocation.PrintTo(out)}, nil
}

// NewInstallCommand returns the command "install".
func NewInstallCommand(access *invocation.Access) *cobra.Command {
	r := &helmRelease{access: access}
	var given values.Options
	var clusterID, registry string
	var allowDowngrade bool
	as := &liqoInstall{}
	command := &cobra.Command{
		Use:   "install",
		Short: "Install Refract in a cluster, or upgrade it",
		Long: "Install the Helm chart that is part of this program, with its CRDs, or upgrade the release and the CRDs, and wait until it runs. Values\n" +
			"from earlier installs are reused unless overridden. The release can be shown and rolled back with helm. A release of a later version is\n" +
			"not replaced without --allow-downgrade, and the ID of a cluster not changed while it is peered.",
		Example: "  refractctl install --context=rome --cluster-id=rome --registry=registry.example.com/refract\n" +
			"  refractctl install -f values.yaml --set metrics.enabled=true\n" +
			"  refractctl install --dry-run > objects.yaml",
		Args: cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			set, err := given.MergeValues(getter.All(helmcli.New()))
			if err != nil {
				return invocation.UsageError(fmt.Errorf("reading --values and the flags that begin with --set, %w", err))
			}
			if clusterID != "" {
				if err := core.ClusterID(clusterID).Validate(); err != nil {
					return invocation.UsageError(fmt.Errorf("--cluster-id: %w", err))
				}
				setValue(set, clusterID, "discovery", "config", "clusterID")
			}
			if registry != "" {
				for command, value := range map[string][]string{
					"controller-manager": {"controllerManager"}, "virtual-kubelet": {"virtualKubelet"}, "gateway": {"networking", "gateways"},
				} {
					image, err := charts.ImageName(registry, command)
					if err != nil {
						return invocation.UsageError(fmt.Errorf("--registry: %w", err))
					}
					setValue(set, image, append(value, "image", "name")...)
				}
			}
			if err := as.setValues(set); err != nil {
				return invocation.UsageError(err)
			}
			installer, err := r.newInstaller(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			installer.AllowDowngrade = allowDowngrade
			var installed *release.Result
			err = invocation.RunWithin(cmd.Context(), r.timeout, func(ctx context.Context) (err error) {
				if err := as.choosePodRoutes(ctx, installer, set); err != nil {
					return err
				}
				if installed, err = installer.Install(ctx, set); err != nil || r.dryRun {
					return err
				}
				return installer.Await(ctx)
			})
			if invalid := (*release.ValuesError)(nil); errors.As(err, &invalid) {
				return invocation.UsageError(err)
			}
			if err != nil {
				return err
			}
			result := invocation.ResultOf(cmd)
			result.Release = &invocation.ResultRelease{Name: installer.Name, Namespace: installer.Namespace, Revision: installed.Revision}
			if r.dryRun {
				result.Manifest = installed.Manifest
				_, err := fmt.Fprint(invocation.UnchangedWriter(cmd.OutOrStdout()), installed.Manifest)
				return err
			}
			result.Notes = installed.Notes
			fmt.Fprintf(cmd.ErrOrStderr(), "revision %d is running\n", installed.Revision)
			_, err = fmt.Fprint(cmd.OutOrStdout(), installed.Notes)
			return err
		}),
	}
	r.addFlags(command)
	flags := command.Flags()
	flags.StringVar(&clusterID, "cluster-id", "", "name of this cluster among its peers (discovery.config.clusterID); required the first time")
	flags.StringVar(&registry, "registry", "", "registry and path of the images controller-manager and virtual-kubelet; required the first time, unless --set names both")
	flags.StringArrayVarP(&given.ValueFiles, "values", "f", nil, "file or URL with values of the chart, or - for the standard input (may be repeated)")
	flags.StringArrayVar(&given.Values, "set", nil, "value of the chart, as PATH=VALUE (may be repeated)")
	flags.StringArrayVar(&given.StringValues, "set-string", nil, "like --set, but the value is always a string")
	flags.StringArrayVar(&given.JSONValues, "set-json", nil, "like --set, but the value is JSON: PATH=JSON, or one object (may be repeated)")
	flags.StringArrayVar(&given.FileValues, "set-file", nil, "like --set, but the value is the content of a file: PATH=FILE (may be repeated)")
	flags.StringArrayVar(&given.LiteralValues, "set-literal", nil, "like --set, but the value is a string in which no character is special (may be repeated)")
	as.addFlags(flags)
	flags.BoolVar(&allowDowngrade, "allow-downgrade", false, "install the version of this program even if the release and its CRDs are of a later one")
	return command
}

// setValue sets a value at a path. If a value on the path is not a map, it is replaced by a map.
func setValue(into map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := into[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			into[key] = next
		}
		into = next
	}
	into[path[len(path)-1]] = value
}

// NewUninstallCommand returns the command "uninstall".
func NewUninstallCommand(access *invocation.Access) *cobra.Command {
	r := &helmRelease{access: access}
	var withCRDs, force bool
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Refract from a cluster",
		Long: "Remove the Helm release. While something is offloaded from or to this cluster, or it is peered with another one, nothing is removed:\n" +
			"the command lists what is in use, and shows how to end that. With --crds this includes the ReflectedResources and PeerNetworks that\n" +
			"would be deleted with the CRDs. If Refract is installed as another release than the given one, the command names it and fails.",
		Example: "  refractctl uninstall --context=rome",
		Args:    cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			installer, err := r.newInstaller(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			err = invocation.RunWithin(cmd.Context(), r.timeout, func(ctx context.Context) error { return installer.Uninstall(ctx, withCRDs, force) })
			if used := (*release.InUseError)(nil); errors.As(err, &used) {
				return fmt.Errorf("nothing was removed, %w", err)
			}
			if err == nil {
				invocation.ResultOf(cmd).Release = &invocation.ResultRelease{Name: installer.Name, Namespace: installer.Namespace}
			}
			return err
		}),
	}
	r.addFlags(command)
	command.Flags().BoolVar(&withCRDs, "crds", false, "also remove the CRDs, unless Liqo is installed")
	command.Flags().BoolVar(&force, "force", false, "remove the release even while it is in use, and keep the CRDs: another controller, such as Liqo's, must take over, or the resources are orphaned")
	return command
}
