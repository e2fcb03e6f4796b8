;; Has its manifest outside its memory.
;; want: manifest: memory
(module
  (memory (export "memory") 1)
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 0xffff000000000010))
  (func (export "outgoing") (result i32) (i32.const 0)))
