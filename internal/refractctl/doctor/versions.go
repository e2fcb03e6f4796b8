// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// Version returns the version that this program installs.
func Version() (string, error) {
	data, err := charts.Refract.ReadFile("refract/Chart.yaml")
	if err != nil {
		return "", fmt.Errorf("reading the embedded chart, %w", err)
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(data, &chart); err != nil {
		return "", fmt.Errorf("parsing the embedded chart, %w", err)
	}
	return chart.AppVersion, nil
}

func (p *Examination) checkVersion(_ context.Context, installed *release.Installation) error {
	own, err := Version()
	if err != nil {
		return err
	}
	p.compareInstalled(own, installed.Version)
	return nil
}

// compareInstalled compares the version of this program with the installed version.
func (p *Examination) compareInstalled(own, installed string) {
	switch difference, known := compareVersions(own, installed); {
	case !known:
		p.addFinding("version", OK, "version %s is installed; it cannot be compared with refractctl %s", installed, own)
	case difference > 0:
		p.addFinding("version", Warning, "%s is installed, and this refractctl is of version %s: upgrade the cluster with refractctl install, providers before consumers", installed, own)
	case difference < 0:
		p.addFinding("version", Warning, "%s is installed, and this refractctl is of version %s: use refractctl of version %s; refractctl install does not go back to %s without --allow-downgrade", installed, own, installed, own)
	default:
		p.addFinding("version", OK, "%s, as refractctl", installed)
	}
}

// compareVersions returns a positive number if one is a later version than other, and a negative number if it is an
// earlier version. known is false if either version cannot be parsed.
func compareVersions(one, other string) (difference int, known bool) {
	parsed, err := version.ParseGeneric(one)
	if err != nil {
		return 0, false
	}
	difference, err = parsed.Compare(other)
	return difference, err == nil
}

// checkDefinitions compares the CRDs in the cluster with the embedded ones.
func (p *Examination) checkDefinitions(ctx context.Context, installed *release.Installation) error {
	own, err := Version()
	if err != nil {
		return err
	}
	wanted, err := embeddedDefinitions()
	if err != nil {
		return err
	}
	liqo, err := p.readDefinition(ctx, release.LiqoDefinition)
	if err != nil {
		return err
	}
	difference, known := compareVersions(own, installed.Version)
	for _, want := range wanted {
		got, err := p.readDefinition(ctx, want.GetName())
		if err != nil {
			return err
		}
		liqos := liqo != nil && strings.HasSuffix(want.GetName(), ".liqo.io")
		// If this refractctl is older than the installation, this was already reported, and the schemas may differ.
		p.checkSchema(want, got, !liqos && (!known || difference >= 0))
	}
	return nil
}

// checkSchema compares the installed CRD, got, with the embedded CRD, want. got is nil if the CRD does not exist. If
// same is true, the schemas must be equal.
func (p *Examination) checkSchema(want, got *unstructured.Unstructured, same bool) {
	subject := "CRD " + want.GetName()
	switch {
	case got == nil:
		p.addFinding(subject, Error, "it is missing: run refractctl install, which updates the CRDs")
	case same:
		if field := missingField(normalizeNumbers(want.Object["spec"]), normalizeNumbers(got.Object["spec"]), "spec"); field != "" {
			p.addFinding(subject, Warning, "it is not that of this refractctl, %s differs, so the API server may drop new fields or refuse objects: run refractctl install, which updates the CRDs (helm upgrade does not)", field)
		}
	}
}

// readDefinition returns the CRD with the given name, or nil if it does not exist.
func (p *Examination) readDefinition(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(release.DefinitionKind)
	err := p.Client.Get(ctx, client.ObjectKey{Name: name}, crd)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as documented
	}
	if err != nil {
		return nil, fmt.Errorf("getting CRD %s, %w", name, err)
	}
	return crd, nil
}

// embeddedDefinitions returns the CRDs that this program installs.
func embeddedDefinitions() (crds []*unstructured.Unstructured, err error) {
	const folder = "refract/crds"
	files, err := fs.ReadDir(charts.Refract, folder)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded CRDs, %w", err)
	}
	for _, file := range files {
		data, err := charts.Refract.ReadFile(path.Join(folder, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the embedded CRDs, %w", err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return nil, fmt.Errorf("parsing the embedded CRD %s, %w", file.Name(), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// normalizeNumbers returns value with all numbers in the same type. Without it, the types would depend on the decoder.
func normalizeNumbers(value any) (decoded any) {
	data, err := json.Marshal(value)
	if err != nil || json.Unmarshal(data, &decoded) != nil {
		return value
	}
	return decoded
}

// missingField returns the path of the first field of want that is missing or different in got, or an empty string if
// there is none. Additional fields of got are ignored, because the API server may have set them.
func missingField(want, got any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		there, ok := got.(map[string]any)
		if !ok {
			return path
		}
		for key, value := range want {
			if field := missingField(value, there[key], path+"."+key); field != "" {
				return field
			}
		}
		return ""
	case []any:
		there, ok := got.([]any)
		if !ok || len(there) != len(want) {
			return path
		}
		for i := range want {
			if field := missingField(want[i], there[i], fmt.Sprintf("%s[%d]", path, i)); field != "" {
				return field
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return path
	}
	return ""
}
