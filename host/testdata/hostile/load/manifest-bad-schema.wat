;; Has a schema for its configuration that is none.
;; want: manifest/configuration: schema
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "{\22name\22:\22x\22,\22kinds\22:[\22*\22],\22hooks\22:[\22outgoing\22],\22configSchema\22:{\22type\22:17}}")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 4398046511178))
  (func (export "outgoing") (result i32) (i32.const 0))
  )
