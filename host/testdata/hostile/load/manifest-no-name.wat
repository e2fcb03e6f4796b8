;; Has a manifest without a name.
;; want: manifest: name
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "{\22kinds\22:[\22*\22],\22hooks\22:[\22outgoing\22]}")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 4398046511140))
  (func (export "outgoing") (result i32) (i32.const 0))
  )
