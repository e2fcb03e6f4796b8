;; Has a version but no manifest.
;; want: exports: refract_manifest
(module (memory (export "memory") 1) (func (export "refract_abi_version") (result i32) (i32.const 1)))
