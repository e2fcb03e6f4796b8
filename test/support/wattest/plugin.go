// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest

import (
	"fmt"
	"strings"
)

// manifestAt is the address of the manifest in the memory of a module from Plugin. Modules may use the memory below
// this address for other data.
const manifestAt = 32768

// Plugin returns the source of a minimal valid plugin. The module has a memory, reports ABI version 1 and returns the
// manifest. imports is inserted at the beginning of the source, and fields at the end. Both may contain any construct
// that this package supports.
func Plugin(manifest, imports, fields string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(manifest)
	return fmt.Sprintf(`(module
  %s
  (memory (export "memory") 1)
  (data (i32.const %d) "%s")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const %d))
  %s)`, imports, manifestAt, escaped, manifestAt<<32|len(manifest), fields)
}
