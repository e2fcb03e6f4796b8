// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package asked

import (
	"maps"
	"strconv"
	"testing"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	record := &Record{Metadata: MetadataValues(map[string]string{"app": "web"}, map[string]string{"note": ""}), Content: Values{}}
	record.Content.Set("a:1", "containers", "main", "image")
	read := Read(map[string]string{Annotation: record.Text()})
	if read == nil || !maps.Equal(read.Metadata, record.Metadata) || !maps.Equal(read.Content, record.Content) {
		t.Fatalf("read %v of %v", read, record)
	}
	if !read.Content.Has("a:1", "containers", "main", "image") || read.Content.Has("a:2", "containers", "main", "image") || read.Content.Has("a:1", "containers", "other", "image") {
		t.Error("another value than the one that was asked for, or none")
	}
	for _, text := range []string{"", "v1:", "v1:.A", "v1:AAAA.", "v2:.", "v1:!.", "."} {
		if record := Read(map[string]string{Annotation: text}); record != nil {
			t.Errorf("%q is read as %v", text, record)
		}
	}
	for i := range maxBytes {
		record.Content.Set("", strconv.Itoa(i))
	}
	if text := record.Text(); text != "" {
		t.Errorf("%d bytes", len(text))
	}
}

func TestMerge(t *testing.T) {
	const ours, reserved = "ours", "offloading.liqo.io/origin"
	last := &Record{Metadata: MetadataValues(map[string]string{"same": "1", "changed": "1", reserved: "home"}, nil)}
	owned := func(key string) bool { return key == ours }
	for name, c := range map[string]struct {
		record                *Record
		actual, desired, want map[string]string
	}{
		"changed by others":           {last, map[string]string{"same": "theirs"}, map[string]string{"same": "1"}, map[string]string{"same": "theirs"}},
		"removed by others":           {last, map[string]string{}, map[string]string{"same": "1"}, map[string]string{}},
		"changed here":                {last, map[string]string{"changed": "theirs"}, map[string]string{"changed": "2"}, map[string]string{"changed": "2"}},
		"new here":                    {last, map[string]string{"new": "theirs"}, map[string]string{"new": "1"}, map[string]string{"new": "1"}},
		"reserved":                    {last, map[string]string{reserved: "theirs"}, map[string]string{reserved: "home"}, map[string]string{reserved: "home"}},
		"unknown, written by others":  {nil, map[string]string{"a": "theirs"}, map[string]string{"a": "1"}, map[string]string{"a": "theirs"}},
		"unknown, written here":       {nil, map[string]string{ours: "0"}, map[string]string{ours: "1"}, map[string]string{ours: "1"}},
		"unknown, absent":             {nil, nil, map[string]string{"a": "1"}, map[string]string{"a": "1"}},
		"the content alone is known":  {&Record{Content: Values{}}, map[string]string{"a": "theirs"}, map[string]string{"a": "1"}, map[string]string{"a": "theirs"}},
		"several that others changed": {last, map[string]string{"same": "theirs", "changed": "theirs"}, map[string]string{"same": "1", "changed": "1"}, map[string]string{"same": "theirs", "changed": "theirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(c.desired)
			if got := c.record.Merge(Labels, c.actual, c.desired, owned); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if !maps.Equal(before, c.desired) {
				t.Errorf("desired was changed to %v", c.desired)
			}
		})
	}
}
