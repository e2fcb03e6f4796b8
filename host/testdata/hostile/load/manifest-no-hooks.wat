;; Has no hooks.
;; want: manifest: hooks
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "{\22name\22:\22x\22,\22kinds\22:[\22*\22]}")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 4398046511130))
  (func (export "outgoing") (result i32) (i32.const 0))
  )
