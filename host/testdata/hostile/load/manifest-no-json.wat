;; Has a manifest in prose.
;; want: manifest: JSON
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "I am a good plugin")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 4398046511122))
  (func (export "outgoing") (result i32) (i32.const 0))
  )
