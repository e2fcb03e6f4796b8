;; Panics when asked for its manifest.
;; want: manifest TrapError: unreachable
(module
  (memory (export "memory") 1)
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) unreachable)
  (func (export "outgoing") (result i32) (i32.const 0)))
