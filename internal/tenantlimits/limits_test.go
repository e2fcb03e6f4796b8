// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultsAreValid(t *testing.T) {
	for _, setting := range Settings() {
		assert.NoErrorf(t, setting.Check(setting.Default), "default of %s", setting.Name)
	}
}

func TestAnnotationsOverrideTheDefaults(t *testing.T) {
	limits, err := New(map[string]string{"scheduler-names": "batch"})
	require.NoError(t, err)
	assert.True(t, limits.Matches(SchedulerNames, "batch"))
	assert.False(t, limits.Matches(SchedulerNames, "default-scheduler"))

	one, err := limits.With(map[string]string{"tenants.refract.io/scheduler-names": "team-*,default-scheduler", "tenants.refract.io/of-a-later-version": "x", "unrelated": "y"})
	require.NoError(t, err)
	for name, allowed := range map[string]bool{"team-a": true, "team-": true, "default-scheduler": true, "batch": false, "my-team-a": false, "default-scheduler2": false} {
		assert.Equalf(t, allowed, one.Matches(SchedulerNames, name), name)
	}
	assert.True(t, limits.Matches(SchedulerNames, "batch"), "the limits of the others have changed")

	none, err := limits.With(map[string]string{"tenants.refract.io/scheduler-names": ""})
	require.NoError(t, err)
	assert.False(t, none.Matches(SchedulerNames, "batch"), "an empty list allows nothing")
}

func TestInvalidLimits(t *testing.T) {
	_, err := New(map[string]string{"schedulers": "x"})
	assert.ErrorContains(t, err, `there is no limit "schedulers": use one of max-namespaces, `)
	_, err = New(map[string]string{"scheduler-names": "a, b"})
	assert.ErrorContains(t, err, "without spaces")

	limits, err := Limits{}.With(map[string]string{"tenants.refract.io/scheduler-names": "(", "tenants.refract.io/other": "("})
	assert.ErrorContains(t, err, "annotation tenants.refract.io/scheduler-names")
	assert.True(t, limits.Matches(SchedulerNames, "default-scheduler"), "an invalid value applies")
}

func TestKinds(t *testing.T) {
	number, on := &Setting{Name: "some-number", Kind: Number, Default: "5"}, &Setting{Name: "some-switch", Kind: Switch, Default: "true"}
	for text, valid := range map[string]bool{"0": true, "17": true, "unlimited": true, "-1": false, "many": false, "": false} {
		assert.Equalf(t, valid, number.Check(text) == nil, text)
	}
	for text, valid := range map[string]bool{"true": true, "false": true, "yes": false, "": false} {
		assert.Equalf(t, valid, on.Check(text) == nil, text)
	}
	size, names := &Setting{Name: "some-size", Kind: Quantity, Default: "10Gi"}, &Setting{Name: "some-names", Kind: Names}
	for text, valid := range map[string]bool{"0": true, "1.5Gi": true, "unlimited": true, "-1": false, "much": false, "": false} {
		assert.Equalf(t, valid, size.Check(text) == nil, text)
	}
	for text, valid := range map[string]bool{"": true, "fast": true, "fast,slow": true, "*": false, "fast*": false, "fast, slow": false} {
		assert.Equalf(t, valid, names.Check(text) == nil, text)
	}
	for text, valid := range map[string]bool{"": true, "hostPID": true, "hostIPC,hostPID": true, "hostNetwork": false, "*": false} {
		assert.Equalf(t, valid, HostNamespaces.Check(text) == nil, text)
	}
	quantity, limited := Limits{}.Quantity(size)
	assert.True(t, limited)
	assert.Equal(t, "10Gi", quantity.String())
	_, limited = Limits{values: map[string]string{"some-size": Unlimited}}.Quantity(size)
	assert.False(t, limited)
	limit, limited := Limits{}.Number(number)
	assert.True(t, limited)
	assert.EqualValues(t, 5, limit)
	_, limited = Limits{values: map[string]string{"some-number": Unlimited}}.Number(number)
	assert.False(t, limited)
	assert.True(t, Limits{}.Enabled(on))
	assert.Equal(t, "someNumber", number.Value())
}

func TestMatches(t *testing.T) {
	for list, texts := range map[string]map[string]bool{
		"":              {"": false, "a": false},
		"*":             {"": true, "a": true, "a\nb": true},
		"a.b,c-*":       {"a.b": true, "axb": false, "c-": true, "c-d": true, "a.b,c-d": false, "xa.b": false, "": false},
		"*.io/*,plain":  {"x.io/y": true, ".io/": true, "x.io": false, "plain": true, "plain2": false},
		"*snippet,a*b*": {"server-snippet": true, "snippets": false, "ab": true, "aXbX": true, "b": false},
	} {
		limits, err := New(map[string]string{"denied-labels": list})
		require.NoError(t, err)
		for text, matches := range texts {
			assert.Equalf(t, matches, limits.Matches(DeniedLabels, text), "%q in %q", text, list)
		}
	}
}

// BenchmarkDeniedAnnotation measures the check of an ordinary pod. It has about ten labels and annotations, and none of
// them is denied.
func BenchmarkDeniedAnnotation(b *testing.B) {
	var limits Limits
	for b.Loop() {
		if limits.DeniesAnnotation("checksum.example.com/configuration") {
			b.Fatal("it is denied")
		}
	}
}
