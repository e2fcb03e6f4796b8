// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package serverversion reads the version of an API server that belongs to another party and is not trusted.
package serverversion

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	versioninfo "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// Read returns the version of an API server, such as v1.36.3 or v1.36.3+k3s1. It returns an error if the response is
// not a valid version or is too long.
func Read(ctx context.Context, client rest.Interface) (string, error) {
	body, err := client.Get().AbsPath("/version").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading /version, %w", err)
	}
	return parseVersion(body)
}

func parseVersion(body []byte) (string, error) {
	var info versioninfo.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("reading /version, %w", err)
	}
	if _, err := version.ParseSemantic(info.GitVersion); err != nil || len(validation.IsValidLabelValue(LabelValue(info.GitVersion))) > 0 {
		return "", fmt.Errorf("gitVersion of /version is %.40q, which is not a version", info.GitVersion)
	}
	return info.GitVersion, nil
}

// LabelValue converts a version to a label value. Label values cannot contain a plus sign.
func LabelValue(version string) string { return strings.ReplaceAll(version, "+", "_") }

// IsOlder reports whether one has an earlier major or minor version than other. Both may be label values. known is
// false if one of the arguments is not a version.
func IsOlder(one, other string) (older, known bool) {
	first, err := version.ParseGeneric(one)
	second, otherErr := version.ParseGeneric(other)
	if err != nil || otherErr != nil {
		return false, false
	}
	if first.Major() != second.Major() {
		return first.Major() < second.Major(), true
	}
	return first.Minor() < second.Minor(), true
}
