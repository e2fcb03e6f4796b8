// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The workload for tests and benchmarks of the fuel pass. It does the typical work of a plugin and of TinyGo's runtime,
// and needs no host functions. Every export returns a checksum, so that the results of two builds can be compared.
// ../workload.sh builds it.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

func main() {}

//go:wasmexport hash
func hash(n uint32) uint32 {
	data := []byte("refract")
	for range n {
		sum := sha256.Sum256(data)
		data = sum[:]
	}
	return checksum(data)
}

func checksum(data []byte) (sum uint32) {
	for _, b := range data {
		sum = sum*31 + uint32(b)
	}
	return sum
}

//go:wasmexport sorting
func sorting(n uint32) uint32 {
	values := make([]int, n)
	state := uint32(1)
	for i := range values {
		state = state*1664525 + 1013904223
		values[i] = int(state >> 8)
	}
	sort.Ints(values)
	return uint32(values[n/2])
}

//go:wasmexport maps
func maps(n uint32) (sum uint32) {
	labels := map[string]uint32{}
	for i := range n {
		key := "app.kubernetes.io/part-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		labels[key] += i
	}
	for _, v := range labels {
		sum += v
	}
	return sum
}

//go:wasmexport text
func text(n uint32) uint32 {
	var b strings.Builder
	for i := range n {
		b.WriteString("metadata.annotations")
		b.WriteByte(byte('0' + i%10))
	}
	s := strings.ReplaceAll(b.String(), "annotations", "labels")
	return checksum([]byte(strings.ToUpper(s)))
}

//go:wasmexport fib
func fib(n uint32) uint32 {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

type visitor interface{ visit(depth uint32) uint32 }

type leaf struct{ v uint32 }
type branch struct{ left, right visitor }

func (l *leaf) visit(depth uint32) uint32   { return l.v * depth }
func (b *branch) visit(depth uint32) uint32 { return b.left.visit(depth+1) + b.right.visit(depth+1) }

func grow(n uint32) visitor {
	if n == 0 {
		return &leaf{v: n + 3}
	}
	return &branch{left: grow(n - 1), right: grow(n / 2)}
}

//go:wasmexport tree
func tree(n uint32) uint32 { return grow(n).visit(0) }

//go:wasmexport loop
func loop(n uint32) uint32 {
	state := n
	for range n {
		state = state*1664525 + 1013904223
		state ^= state >> 7
	}
	return state
}

type endpoint struct {
	Name  string            `json:"name"`
	Port  int               `json:"port"`
	Ready bool              `json:"ready"`
	Tags  map[string]string `json:"tags"`
}

//go:wasmexport jsons
func jsons(n uint32) (sum uint32) {
	for i := range n {
		text, err := json.Marshal(map[string]any{"items": []endpoint{{"web", int(i), true, map[string]string{"app": "shop", "tier": "front"}}, {Name: "db"}}, "note": "a \"quoted\" text"})
		if err != nil {
			return 0
		}
		var back map[string]any
		if json.Unmarshal(text, &back) != nil || len(back) != 2 {
			return 0
		}
		sum += checksum(text)
	}
	return sum
}

//go:wasmexport format
func format(n uint32) (sum uint32) {
	for i := range n {
		sum += checksum([]byte(fmt.Sprintf("%s-%d: %5.2f, %v, %q", "pod", i, float64(i)/3, []int{int(i), 2}, "a b")))
	}
	return sum
}

var image = regexp.MustCompile(`^([a-z0-9.-]+/)?([a-z0-9/_-]+)(:[\w.-]+)?(@sha256:[0-9a-f]{8,})?$`)

//go:wasmexport match
func match(n uint32) (sum uint32) {
	for range n {
		sum += checksum([]byte(image.ReplaceAllString("registry.example.com/shop/web_frontend:1.4.2@sha256:0123456789abcdef", "mirror/$2$3")))
	}
	return sum
}
